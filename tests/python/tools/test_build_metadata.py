"""tools/build_metadata.py: the packages that the extra `tensorflow` requires on this machine."""

import importlib.util
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "tools/build_metadata.py"


@pytest.fixture
def metadata():
    spec = importlib.util.spec_from_file_location("build_metadata", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def install(folder: Path, name: str) -> None:
    """Creates in `folder` the metadata that pip writes for a distribution of that name."""
    info = folder / f"{name.replace('-', '_')}-2.21.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.21.0\n")


@pytest.mark.parametrize(
    "name", ["tensorflow", "tensorflow-cpu", "tensorflow_cpu", "tf-nightly", "tensorflow-rocm", "TensorFlow"]
)
def test_an_installed_tensorflow_is_left_alone(metadata, tmp_path, name):
    install(tmp_path, name)
    assert metadata.tensorflow_requirements([str(tmp_path)]) == []


@pytest.mark.parametrize("name", ["tensorflow-datasets", "tensorflow-io", "keras", "tf-keras"])
def test_companions_are_no_tensorflow(metadata, tmp_path, name):
    install(tmp_path, name)
    assert metadata.installed_tensorflow([str(tmp_path)]) is None


def test_the_small_package_unless_gpus_or_another_machine_want_the_full_one(metadata, tmp_path):
    none, driver = tmp_path / "none", tmp_path / "version"
    driver.touch()
    folders = [str(tmp_path)]
    assert metadata.tensorflow_requirements(folders, "x86_64", none) == ["tensorflow-cpu>=2.16"]
    assert metadata.tensorflow_requirements(folders, "x86_64", driver) == ["tensorflow>=2.16"]
    assert metadata.tensorflow_requirements(folders, "aarch64", none) == ["tensorflow>=2.16"]


@pytest.mark.parametrize("system_packages", [False, True])
def test_it_looks_where_the_environment_keeps_its_packages(tmp_path, system_packages):
    """As in pip's isolated build: the environment's interpreter, its packages hidden from sys.path."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True, system_site_packages=system_packages)
    python = tmp_path / "env/bin/python"
    install(next((tmp_path / "env/lib").glob("python3*")) / "site-packages", "tensorflow-cpu")
    code = (
        "import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]\n"
        f"sys.path.append({str(SOURCE.parent)!r})\n"
        "import build_metadata as b\n"
        "print(b.dynamic_metadata({}, {}))"
    )
    env = {**os.environ, "PYTHONPATH": "", "CXX": sys.executable}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, env=env, check=False)
    assert done.stdout.strip() == "{'optional-dependencies': {'tensorflow': []}}", done.stderr


def test_no_compiler_is_one_clear_sentence(metadata, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    metadata.build_state("metadata_wheel")
    with pytest.raises(SystemExit, match=r"Missing: a C\+\+20 compiler .*apt-get install g\+\+"):
        metadata.dynamic_metadata({}, {})
    metadata.build_state("sdist")
    assert "optional-dependencies" in metadata.dynamic_metadata({}, {})


def test_a_wrong_cxx_is_named(metadata, monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/g++ -m64")
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    assert any("/nonexistent/g++" in line for line in metadata.what_is_missing())
