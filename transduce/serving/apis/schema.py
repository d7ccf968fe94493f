"""The requests and answers of /v1 as types: they are checked, and described in /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
)
from pydantic.config import JsonDict
from starlette.requests import Request

from transduce.errors import printable
from transduce.serving.refusals import RequestError
from transduce.translation.sentences import Split

# A head: its kind, layer and number, both from 1.
HEAD = r"^(encoder|decoder|cross)\.[1-9][0-9]{0,2}\.[1-9][0-9]{0,2}$"
MOST_TERMS = 1000  # of a glossary
_NOT_NAMES = ("string", "list", "[key]")  # the kind of a value, where pydantic says its place
# In JSON, 2.0 is an integer, too.
Whole = BeforeValidator(lambda value: _whole(value))
Text = Annotated[str, Field(description="A text of any length, with markup.")]
Term = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
# Pydantic describes only names that match the pattern of a term; all others must be refused, too.
_ONLY_TERMS: JsonDict = {"additionalProperties": False}
Glossary = Annotated[dict[Term, Term], Field(max_length=MOST_TERMS, json_schema_extra=_ONLY_TERMS)]


class Strict(BaseModel):
    """A JSON object without unknown names, whose values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TranslateRequest(Strict):
    """Texts to translate, and what to return besides the translations."""

    text: Annotated[
        Annotated[str, Tag("string")] | Annotated[list[Text], Field(min_length=1), Tag("list")],
        Discriminator(lambda value: "list" if isinstance(value, list) else "string"),
    ]
    model: str | None = None
    n_best: Annotated[int, Field(ge=1, le=16), Whole] = 1
    alignments: bool = False
    confidences: bool = False
    glossary: Glossary = {}
    stream: bool = False
    split: Split = "lines"


class AttentionRequest(Strict):
    """A text whose translation is inspected."""

    text: Annotated[str, Field(min_length=1)]
    model: str | None = None
    sentence: Annotated[int, Field(ge=0), Whole] = 0
    without: list[Annotated[str, Field(pattern=HEAD)]] = []


class WalkthroughRequest(Strict):
    """A text whose translation is explained step by step."""

    text: Annotated[str, Field(min_length=1)]
    model: str | None = None
    layer: Annotated[int, Field(ge=1), Whole] = 1
    head: Annotated[int, Field(ge=1), Whole] = 1


class Choice(Strict):
    """One of the n best translations."""

    text: str
    score: float


class TokenAnswer(Strict):
    """A token of a translation."""

    text: str
    probability: float


class SentenceAnswer(Strict):
    """A sentence and its translation."""

    source: str
    text: str
    score: float
    n_best: list[Choice]
    before: str
    source_words: list[str] | None = None
    target_words: list[str] | None = None
    alignment: list[tuple[int, int]] | None = None
    tokens: list[TokenAnswer] | None = None


class TranslationAnswer(Strict):
    """The translation of one text."""

    text: str
    score: float
    n_best: list[Choice]
    notices: list[str]
    sentences: list[SentenceAnswer]


class TranslateAnswer(Strict):
    """The translations of all texts, in order."""

    model: str
    translations: list[TranslationAnswer]


class ModelAnswer(Strict):
    """A model that is served."""

    name: str
    source_language: str | None
    target_language: str | None
    default: bool
    parameters: int
    engine: str


class ModelsAnswer(Strict):
    """All models that are served."""

    models: list[ModelAnswer]


class RunAnswer(Strict):
    """The state of a training run."""

    name: str
    state: str
    step: int
    steps: int


class RunsAnswer(Strict):
    """All runs in the folder of runs."""

    runs: list[RunAnswer]


class ErrorAnswer(Strict):
    """Why a request was refused, in one line."""

    error: str


def _whole(value: Any) -> Any:
    """Return a number without a fraction as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Body = TypeVar("Body", bound=Strict)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """Return the JSON body of a request, or refuse it in one line."""
    content_type = request.headers.get("content-type", "application/json")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, f"the content type is {content_type!r}; expected application/json")
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestError(400, _first_problem(error)) from None


def _first_problem(error: ValidationError) -> str:
    """Return the first problem of a body in one line."""
    problem: dict[str, Any] = dict(error.errors(include_url=False, include_input=False)[0])
    names = [str(name) for name in problem["loc"] if name not in _NOT_NAMES]
    place = ".".join(printable(name) for name in names if name.strip())
    message = " ".join(str(problem["msg"]).split())[:300]
    if problem["type"] == "extra_forbidden":
        return f"{place or 'an empty name'} is not a setting of this request; see /openapi.json"
    return f"{place}: {message}" if place else message
