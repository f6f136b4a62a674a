import { isIP } from 'node:net';

export function isLoopback(host: string): boolean {
  return host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

/** Whether a `host` header names this host without a name that others can give it. */
export function isLocalName(header: string): boolean {
  const name = header.replace(/:\d+$/, '').toLowerCase();
  return name === 'localhost' || isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
}
