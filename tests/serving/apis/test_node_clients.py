"""The clients of LibreTranslate and DeepL for Node.js, installed from npm."""

import json
import shutil
import subprocess

import pytest

PACKAGES = [
    "translate@3.1.0",
    "libretranslate@1.0.1",
    "libretranslate-ts@0.5.12",
    "deepl-node@1.28.0",
]
SCRIPT = """
import translate from "translate";
import libre from "libretranslate";
import { libreTranslate } from "libretranslate-ts";
import * as deepl from "deepl-node";

const url = process.argv[2];
const text = "42 hours";
translate.engine = "libre";
translate.url = url + "/translate";
libreTranslate.setApiEndpoint(url);
libreTranslate.setApiKey("");
const client = new deepl.Translator("any", { serverUrl: url });
const answers = {
  translate: await translate(text, { from: "en", to: "de" }),
  libretranslate: await libre.translate({ query: text, source: "en", target: "de", apiurl: url }),
  libretranslateTs: (await libreTranslate.translate(text, "en", "de")).translatedText,
  deepl: (await client.translateText([text], "en", "de"))[0].text,
  languages: (await client.getTargetLanguages()).map((language) => language.code),
  usage: (await client.getUsage()).anyLimitReached(),
};
console.log(JSON.stringify(answers));
"""


@pytest.mark.slow
def test_clients_for_node_work_unchanged(server, translator, tmp_path):
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "ask.mjs").write_text(SCRIPT)
    install = [npm, "install", "--no-fund", "--no-audit", *PACKAGES]
    if subprocess.run(install, cwd=tmp_path, capture_output=True, timeout=300).returncode:
        pytest.skip("the packages cannot be downloaded")
    done = subprocess.run(
        ["node", "ask.mjs", server.url], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    expected = translator.translate("42 hours").text
    for name in ("translate", "libretranslate", "libretranslateTs", "deepl"):
        assert answers[name] == expected, name
    assert (answers["languages"], answers["usage"]) == (["de"], False)
