import { isIPv4, isIPv6 } from 'node:net';
import { KpngError } from '../errors.ts';
import { socketPathProblem } from '../util/socket-file.ts';

/** The address of a kpng server; only `parseTarget` creates it. */
export interface Target {
  /** The target for gRPC. */
  readonly uri: string;
  /** Name or address that a TLS certificate must match. */
  readonly host: string;
  /** As the user wrote it. */
  readonly text: string;
}

export const DEFAULT_API = '127.0.0.1:12090';

/**
 * Parses the target of an API: `host:port`, `dns:host:port`, `dns:///host:port`, `unix:path` (relative to the working
 * directory) or `unix:///absolute/path`. An IPv6 address goes in brackets.
 *
 * `flag` is named in the error (KPNG_USAGE).
 */
export function parseTarget(text: string, flag = '--api'): Target {
  const fail = (problem: string): never => {
    throw new KpngError('KPNG_USAGE', `${flag} ${JSON.stringify(text)}: ${problem}`);
  };
  if (text === '') return fail(`expected a target such as ${DEFAULT_API}`);
  if (text.startsWith('multi:')) {
    return fail(
      'several targets are not supported (kpng itself only mentions them); use a DNS name with several addresses',
    );
  }
  if (text.startsWith('unix:')) {
    const rest = text.slice(5);
    const path = rest.startsWith('//') ? rest.slice(2) : rest;
    if (path !== rest && !path.startsWith('/')) {
      return fail('write unix:relative/path or unix:///absolute/path');
    }
    const problem = socketPathProblem(path);
    return problem === undefined ? { uri: `unix:${path}`, host: 'localhost', text } : fail(problem);
  }
  if (/^dns:\/\/(?!\/)/.test(text)) {
    return fail('a DNS server cannot be chosen; write dns:///host:port');
  }
  // "dns:12090" would be a host named dns.
  const dns = /^dns:(?!\d+$)(?:\/\/\/)?(.*)$/s.exec(text)?.[1];
  if (dns !== undefined) return { ...hostPort(dns, fail), text };
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//.exec(text);
  if (scheme) {
    return fail(
      `the scheme "${scheme[1]}" is not known; write host:port, dns:///host:port or unix:path`,
    );
  }
  return { ...hostPort(text, fail), text };
}

type Fail = (problem: string) => never;

function hostPort(text: string, fail: Fail): { uri: string; host: string } {
  const match = /^(\[.*\]|[^:]*)(?::([^:]*))?$/s.exec(text);
  if (!match) return fail('expected host:port; an IPv6 address goes in brackets: [::1]:12090');
  const [, host = '', port] = match;
  if (host.startsWith('[')) {
    if (!isIPv6(host.slice(1, -1))) return fail(`${host} is not an IPv6 address`);
  } else if (!isIPv4(host) && !isHostName(host)) {
    return fail(host === '' ? 'the host is missing' : `"${host}" is not a host name`);
  }
  if (port === undefined) return fail('the port is missing: expected host:port');
  if (!/^\d{1,5}$/.test(port) || Number(port) < 1 || Number(port) > 65_535) {
    return fail(`"${port}" is not a port`);
  }
  const name = host.startsWith('[') ? host.slice(1, -1) : host.replace(/\.$/, '');
  return { uri: `dns:${host}:${Number(port)}`, host: name };
}

function isHostName(text: string): boolean {
  if (text.length > 253 || /^[\d.]+$/.test(text)) return false;
  return /^(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.|$))+$/.test(text);
}
