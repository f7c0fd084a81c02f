from __future__ import annotations

import struct

from testbed.network.sock_diag import TcpCounters, decode_tcp_info


def tcp_info(length: int) -> bytes:
    """A struct tcp_info of linux/tcp.h whose members have distinct values."""
    members = struct.pack(
        "=8B 24I 4Q 2I 2I 2I 4Q 2I 2Q 4I",
        *range(8),  # state to the window scales
        *(100 + number for number in range(24)),  # rto to total_retrans
        *(200 + number for number in range(4)),  # pacing rates, bytes_acked, bytes_received
        300, 301,  # segs_out, segs_in
        302, 303,  # notsent_bytes, min_rtt
        304, 305,  # data_segs_in, data_segs_out
        *(400 + number for number in range(4)),  # delivery_rate to sndbuf_limited
        500, 501,  # delivered, delivered_ce
        600, 601,  # bytes_sent, bytes_retrans
        700, 701, 702, 703,  # dsack_dups, reord_seen, rcv_ooopack, snd_wnd
    )  # fmt: skip
    return members[:length]


def test_the_members_are_at_the_kernels_offsets() -> None:
    assert len(tcp_info(1000)) == 232
    assert decode_tcp_info(tcp_info(232)) == TcpCounters(
        received_bytes=203,
        segments_in=301,
        acked_bytes=202,
        segments_out=300,
        retransmitted_bytes=601,
    )


def test_an_older_kernels_retransmissions_are_whole_segments() -> None:
    # total_retrans is the 24th of the 32-bit members (123), snd_mss the third (102).
    assert decode_tcp_info(tcp_info(192)).retransmitted_bytes == 123 * 102


def test_a_kernel_without_byte_counters_gives_zeros() -> None:
    found = decode_tcp_info(tcp_info(104))
    assert found == TcpCounters(retransmitted_bytes=123 * 102)
    assert decode_tcp_info(b"") == TcpCounters()
