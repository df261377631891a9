"""Commands that install extras, from a checkout and where the package was installed from an index."""

from pesto.core import distribution


def test_the_command_is_of_where_pesto_runs_from(tmp_path, monkeypatch) -> None:
    """In a checkout the index's package is not wanted, and elsewhere there is no folder to install."""
    assert distribution.install_command("serve", "study") == "pip install -e '.[serve,study]'"
    monkeypatch.setattr(distribution, "_ROOT", tmp_path)
    assert distribution.install_command("serve") == "pip install 'pesto-placement[serve]'"
