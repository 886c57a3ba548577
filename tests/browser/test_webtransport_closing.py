"""The close of a session by our server, as a page sees it. Browsers lose a session that
webtransport-go closes.

When the server closes, it has received all of the page's data. Chromium 156 receives the capsule
and answers it even if it crosses bytes of the page, and yet reports one in twenty of such sessions
as lost.
"""

import pytest

from tests.browser.servers import OURS


@pytest.mark.parametrize(("code", "reason"), [(0, ""), (32, "enough"), (2**32 - 1, "x")])
def test_the_page_gets_the_servers_close(transport_page, servers_kept, code, reason):
    url = servers_kept(OURS).url(f"/close?code={code}&reason={reason}")
    assert transport_page.call("closeByServer", url) == {"closeCode": code, "reason": reason}
