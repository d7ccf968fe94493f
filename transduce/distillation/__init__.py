"""Text made by models, and smaller models: back-translation, distillation and compression."""
