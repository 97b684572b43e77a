"""The commands and names of the documents that the examples follow (documents.json) work, or are EXCUSED."""

from __future__ import annotations

import argparse
import ast
import builtins
import functools
import importlib
import inspect
import json
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .conftest import EXAMPLES, environment

ROOT = EXAMPLES.parent
DOCUMENTS: dict[str, Any] = json.loads(Path(__file__).with_name("documents.json").read_text(encoding="utf-8"))
PROGRAMS = Path(sys.executable).parent
PROGRAMS_OF_EXAMPLES = sorted(
    path for path in EXAMPLES.rglob("*.py") if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
)

# The folders below examples/ that each document is about, and the programs that its options belong to.
FOLDERS = {
    "000": ["image_classification"],
    "001": ["quick_start"],
    "002": ["models/resnet", "models/transformer"],
    "003": ["scaling_tutorial"],
    "004": ["mirrored_strategy"],
}
SCRIPTS = {
    "000": ["image_classification/train_imagenet_main.py"],
    "001": ["quick_start/model.py"],
    "002": ["models/resnet/resnet50_tnt.py", "models/transformer/transformer_tnt.py"],
    "003": ["scaling_tutorial/train_horovod.py"],
    "004": ["mirrored_strategy/mnist_classify.py"],
}

NOT_OURS = {
    **dict.fromkeys(
        ["cp", "gunzip", "wget", "touch", "nano", "which", "unset", "source", "mkdir", "cat"], "the shell's"
    ),
    **dict.fromkeys(["git", "conda", "bash"], "installs what the user has already"),
    **dict.fromkeys(["singularity", "srun", "ssh", "module"], "the cluster's; what it starts is a command of its own"),
    "sqs": "a command of one cluster",
}
EXCUSED = {
    "001": {
        "tf.keras.callbacks.ModelCheckpoint(options=)": "Keras 3 refuses options=None: docs/tutorials/quick_start.md",
        "quick_start_model.py": "what the document includes; the program is model.py",
    },
    "002": {
        "cd /your/models/path": "a folder of the user's",
        "cd tarantella_models/src": "the folder of another repository; TNT_MODELS_PATH is examples/ here",
        "python -m tensorflow_datasets.scripts.download_and_prepare --datasets=imagenet2012"
        " --data_dir=${TNT_DATASETS_PATH}": "installed by the user; the download takes 150 GB",
        "--datasets": "an option of tensorflow_datasets",
        "pip install tf-models-official==2.2.1": "not needed: examples/ has what the programs used of it",
    },
    "004": {
        "cd /scratch/<NetID>/tensorflow-example": "a folder of the user's",
        "cd /scratch/NetID/tensorflow_example": "a folder of the user's",
        "Miniforge3-Linux-x86_64.sh": "the installer of conda",
        **dict.fromkeys(["--all", "--yes", "--remove", "--no-check-certificate"], "options of conda and wget"),
        **dict.fromkeys(["--nv", "--overlay"], "options of singularity"),
        **dict.fromkeys(
            ["--cpus-per-task", "--gres", "--job-name", "--mem", "--nodes", "--ntasks", "--time"], "options of sbatch"
        ),
        "pip install tensorflow[and-cuda] tensorflow_datasets": "installs what the user has already",
        "tensorflow_datasets": "installed by the user, for the download only",
        "tfds.load": "installed by the user, for the download only",
        "strategy.scope": "what Tarantella replaces: docs/from_mirrored_strategy.md",
        "info.splits": "Info.num_examples in examples/mirrored_strategy/cassava.py",
        "info.features": "Info.num_classes in examples/mirrored_strategy/cassava.py",
    },
}  # fmt: skip


def items(*kinds: str) -> Iterator[tuple[str, str]]:
    """Pairs of a document and an item of these kinds, except what is excused."""
    for document, facts in DOCUMENTS.items():
        for kind in kinds:
            yield from ((document, item) for item in facts[kind] if item not in EXCUSED.get(document, {}))


@functools.cache
def sources(document: str) -> dict[str, str]:
    """The modules of a document's examples: name and source."""
    folders = [*(EXAMPLES / folder for folder in FOLDERS[document]), EXAMPLES / "common"]
    return {path.stem: path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")}


@functools.cache
def options_of(*command: str) -> frozenset[str]:
    """The options that a program's --help names."""
    done = subprocess.run(
        [*command, "--help"], env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.lower().startswith("usage: "), done.stdout
    return frozenset(re.findall(r"(?<![\w-])--[a-z][\w-]*", done.stdout))


def options_of_script(path: Path) -> frozenset[str]:
    assert path.exists(), f"{path.relative_to(ROOT)} does not exist"
    return options_of(str(path))


@pytest.mark.parametrize("path", PROGRAMS_OF_EXAMPLES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_a_program_can_be_started_by_its_name(path: Path) -> None:
    assert os.access(path, os.X_OK)
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python\n")


def options_in(words: list[str]) -> set[str]:
    return {word.split("=")[0] for word in words if word.startswith("--")}


def start_tarantella(words: list[str], folder: Path, place: Path) -> None:
    """Checks the launcher's options with --dry-run, and the script's with its --help."""
    (place / "hostfile").write_text(socket.gethostname() + "\n")
    split = words.index("--")
    script = Path(words[split + 1])
    script = script if script.is_absolute() else folder / script
    assert options_in(words[split + 2 :]) <= options_of_script(script)
    command = [str(PROGRAMS / "tarantella"), "--dry-run", *words[1:split], "--", str(script), *words[split + 2 :]]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def check_command(document: str, command: str, place: Path) -> None:
    command = re.sub(r"\$\{TNT_MODELS_PATH\}", str(EXAMPLES), command)
    words = shlex.split(re.sub(r"\$\{\w+\}", "/data", command))
    words = words[next(number for number, word in enumerate(words) if "=" not in word) :]
    folder = EXAMPLES / FOLDERS[document][0]
    if words[0] in NOT_OURS:
        return
    if words[0] == "cd":
        assert (ROOT / words[1]).is_dir()
    elif words[0] == "export":  # a folder of ours that is put into PYTHONPATH, or one of the user's
        for path in re.findall(rf"{EXAMPLES}[\w/]*", command):
            assert Path(path).is_dir()
    elif words[0] == "tarantella":
        start_tarantella(words, folder, place)
    elif words[0] == "python":
        assert options_in(words[2:]) <= options_of_script(folder / words[1])
    elif words[0] == "sbatch":
        done = subprocess.run(["bash", "-n", str(folder / words[-1])], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    else:
        pytest.fail(f"{words[0]} is neither known nor excused")


@pytest.mark.timeout(600)
def test_commands_and_options(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:  # two at a time; what follows uses the answers
        list(pool.map(options_of_script, PROGRAMS_OF_EXAMPLES))
    for document, command in items("commands"):
        check_command(document, command, tmp_path)
    for document, facts in DOCUMENTS.items():
        known = set(options_of(str(PROGRAMS / "tarantella")) | EXCUSED.get(document, {}).keys())
        for script in SCRIPTS[document]:
            known |= options_of_script(EXAMPLES / script)
        assert set(facts["options"]) <= known, document


@functools.cache
def roots() -> dict[str, Any]:
    """What the first words of a name stand for."""
    import keras
    import tensorflow as tf

    import tarantella as tnt

    inputs = keras.Input((2,))
    plain = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    models = dict.fromkeys(["model", "new_model", "self.train_model"], tnt.Model(plain))
    data = dict.fromkeys(["dataset", "?"], tf.data.Dataset)
    modules = {"tf": tf, "keras": keras, "tnt": tnt, "argparse": argparse, "logging": logging}
    other = {"callbacks": list, "parser": argparse.ArgumentParser, "base_model": plain}
    return {**models, **data, **modules, **other}


def definition(name: str, document: str) -> ast.AST | None:
    """Where `module.name` or `name` is defined, imported or assigned in a document's examples."""
    *module, last = name.split(".")
    if module:
        aliases = re.findall(rf"\bimport (\w+) as {module[-1]}\b", "".join(sources(document).values()))
        module = aliases[:1] or module
    for stem, source in sources(document).items():
        if module and stem != module[-1]:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.alias)) and node.name == last:
                return node
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and target.id == last for target in targets):
                    return node
    return None


def resolve(name: str, document: str) -> Any:
    """The object of that name, or its definition in the examples. Fails where there is neither."""
    name = re.sub(r"^tnt\.Model\.", "model.", name)
    for root, value in sorted(roots().items(), key=lambda pair: -len(pair[0])):
        if name == root or name.startswith(root + "."):
            for part in name[len(root) + 1 :].split(".") if name != root else []:
                if root == "?" and not hasattr(value, part):  # of an object that the snippet has made
                    assert_is_used(part, document)
                    return None
                value = getattr(value, part)
            return value
    first, last = name.split(".")[0], name.split(".")[-1]
    if first in ("self", "args", "flags_obj", "info", "strategy"):
        return assert_is_used(last, document)
    found = definition(name, document) or getattr(builtins, name, None) or stand_in(name)
    assert found is not None, f"{name} is in none of {', '.join(sources(document))}"
    return found


def stand_in(name: str) -> Any:
    return inspect.getattr_static(importlib.import_module("time"), name, None)


def assert_is_used(name: str, document: str) -> None:
    """As an attribute of something, as a variable or function, or as an option of the command line."""
    assert any(name in names_in(source) for source in sources(document).values()), f"no {name} in the examples"


@functools.cache
def names_in(source: str) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        found |= {getattr(node, field, None) for field in ("attr", "id", "name", "arg")}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            found.add(node.value[2:].replace("-", "_"))
    return frozenset(found)


def initializer(found: ast.ClassDef) -> ast.FunctionDef | None:
    functions = (each for each in found.body if isinstance(each, ast.FunctionDef))
    return next((each for each in functions if each.name == "__init__"), None)


def parameters(found: Any) -> set[str] | None:
    """The names of what a function or class takes; None if that is not known."""
    if isinstance(found, ast.FunctionDef):
        given = found.args
        return None if given.kwarg else {each.arg for each in [*given.posonlyargs, *given.args, *given.kwonlyargs]}
    if isinstance(found, ast.ClassDef):
        made = initializer(found)
        annotated = [each.target for each in found.body if isinstance(each, ast.AnnAssign)]
        fields = {each.id for each in annotated if isinstance(each, ast.Name)}
        return parameters(made) if made else fields or None
    if found is None or isinstance(found, ast.AST):
        return None
    found = passes_on().get(found, found)
    given = inspect.signature(found).parameters
    if not any(each.kind == each.VAR_KEYWORD for each in given.values()):
        return set(given)
    if not isinstance(found, type):
        return None
    # What a class does not take itself it passes to the class that it is derived from.
    makers = [each.__init__ for each in found.__mro__ if "__init__" in vars(each) and each is not object]
    return {name for maker in makers for name in inspect.signature(maker).parameters}


@functools.cache
def passes_on() -> dict[Any, Any]:
    """What takes any argument, and what it passes them to."""
    import keras

    functional = type(roots()["base_model"])
    return {keras.Model: functional, argparse.ArgumentParser.add_argument: argparse.Action}


def test_files_imports_and_names() -> None:
    for document, name in items("files"):
        starts = [EXAMPLES, *(EXAMPLES / folder for folder in FOLDERS[document])]
        assert any((start / name.removeprefix("examples/")).exists() for start in starts), name
    for _, module in items("imports"):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            parent, name = module.rsplit(".", 1)
            assert hasattr(importlib.import_module(parent), name), module
    for document, name in items("names", "calls"):
        if name != "?":
            found = resolve(name, document)
            words = DOCUMENTS[document]["calls"].get(name, [])
            given = {word for word in words if f"{name}({word}=)" not in EXCUSED.get(document, {})}
            assert not given or given <= (parameters(found) or set()), (document, name)
