"""Addresses on the public internet: RFC 6890, and where clouds keep their metadata.

A list of our own and not `ipaddress.is_global`, which calls 64:ff9b::a9fe:a9fe and 192.0.0.192
global.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

FORBIDDEN: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # carriers' NAT; Alibaba's metadata
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's host agent
            "169.254.0.0/16",  # link-local; metadata of nearly every cloud
            "172.16.0.0/12",
            "192.0.0.0/24",  # IETF assignments; Oracle's metadata
            "192.0.2.0/24",
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
            "2001::/23",  # IETF assignments: Teredo, ORCHID, benchmarks
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
        ),
    )
)
GLOBAL_UNICAST = IPv6Network("2000::/3")  # of IPv6, only this has been given out for the internet
MAPPED = IPv6Network("::ffff:0:0/96")
COMPATIBLE = IPv6Network("::/96")
TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))  # RFC 6052, RFC 8215
ISATAP = frozenset({0x00005EFE, 0x02005EFE})  # RFC 5214 §6.1


def judged(address: Address) -> Iterator[Address]:
    """The address itself, and every IPv4 address that a gateway on the way might take it for."""
    if isinstance(address, IPv4Address):
        yield address
        return
    low = IPv4Address(int(address) & 0xFFFFFFFF)
    if address not in MAPPED:  # which is nothing but IPv4 in another spelling
        yield address
    if any(address in network for network in (MAPPED, COMPATIBLE, *TRANSLATED)):
        yield low
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo  # server and client
    if (int(address) >> 32) & 0xFFFFFFFF in ISATAP:
        yield low


def is_inward(address: Address) -> bool:
    """Return whether the address leads to a machine that nobody on the internet may reach."""
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return True
    return any(address in network for network in FORBIDDEN)


def subscriber(address: str) -> str:
    """Whom an address belongs to: one subscriber is given a whole /64 (RFC 6177)."""
    return _network(address, 64)


def site(address: str) -> str:
    """The network that an address belongs to, for limits that nobody may get round by changing it:
    of IPv6 the /48, which is the most that one site is given (RFC 6177)."""
    return _network(address, 48)


def _network(address: str, prefix: int) -> str:
    """An IPv4 address, or text that is no address, stands for itself."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or IPv6Network((found, prefix), strict=False))
