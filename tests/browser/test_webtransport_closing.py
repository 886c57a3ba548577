"""How a page hears that our server closes a session. One that webtransport-go closes is lost for browsers.

The server has all that the page has sent when it closes. Chromium 156 hears the capsule and answers it also
where bytes of the page's cross it, and yet calls one in twenty of such sessions lost.
"""

import pytest

from tests.browser.servers import OURS


@pytest.mark.parametrize(("code", "reason"), [(0, ""), (32, "enough"), (2**32 - 1, "x")])
def test_the_page_hears_how_the_server_closes(transport_page, servers_kept, code, reason):
    url = servers_kept(OURS).url(f"/close?code={code}&reason={reason}")
    assert transport_page.call("closeByServer", url) == {"closeCode": code, "reason": reason}
