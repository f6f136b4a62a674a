import { isIP, type Socket } from 'node:net';

/** The listen address of a server. */
export interface HostPort {
  /** IP literal without brackets; empty: every address of the host. */
  readonly host: string;
  /** 0 to 65535; 0: the kernel chooses. */
  readonly port: number;
}

/**
 * Parses `ip:port`, `[ip6]:port` or `:port`; undefined for anything else. Host names are rejected: a listener must
 * not depend on a resolver.
 */
export function parseHostPort(text: string): HostPort | undefined {
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(text);
  if (match === null) return undefined;
  const [, bracketed, plain, digits] = match;
  const port = Number(digits);
  if (port > 65_535) return undefined;
  if (bracketed !== undefined) {
    return isIP(bracketed) === 6 ? { host: bracketed, port } : undefined;
  }
  const host = plain ?? '';
  return host === '' || isIP(host) === 4 ? { host, port } : undefined;
}

/** The inverse of `parseHostPort`. */
export function formatHostPort({ host, port }: HostPort): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** The peer of a connection as `ip:port`; empty if it is unknown: of a unix socket, or of a connection that has ended. */
export function peerText({ remoteAddress: host, remotePort: port }: Socket): string {
  return host === undefined || port === undefined ? '' : formatHostPort({ host, port });
}

/** Whether only clients on this host reach an IP literal. */
export function isLoopback(host: string): boolean {
  return /^(?:::1|(?:::ffff:)?127(?:\.\d+){3})$/i.test(host);
}
