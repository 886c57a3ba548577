"""The browsers, the requirements of each, and their start for the tests."""

from __future__ import annotations

import importlib.util
import shutil

NAMES = ("chromium", "firefox")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
CERTUTIL = shutil.which("certutil")


def lacking(name):
    """Returns the reason why a browser cannot run here, or nothing."""
    if name == "firefox":
        if FIREFOX is None or CERTUTIL is None:
            return "firefox-esr or certutil is not installed: `make test-browser` does it"
    elif CHROMIUM is None:
        return "chromium is not installed: `make test-browser` does it"
    elif importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: it is in the extra `browsers`"
    return None


def launch(name, profile, pki):
    """Starts a browser by its name, with a profile in a new folder, that trusts `pki`'s servers."""
    if name == "firefox":
        from tests.browser.firefox import Firefox

        return Firefox(FIREFOX, CERTUTIL, profile, pki.authority)
    from tests.browser.chromium import Chromium

    return Chromium(CHROMIUM, profile, pki.server)
