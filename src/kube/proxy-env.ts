import { BlockList, isIP } from 'node:net';

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The proxy for a server according to the environment, by Go's rules: `HTTPS_PROXY` or `HTTP_PROXY` depending on the
 * scheme, in either case; `NO_PROXY` lists hosts, domains, addresses and networks to reach directly; loopback is
 * always direct. Undefined: none.
 */
export function proxyFromEnvironment(server: URL, env: Environment): string | undefined {
  const scheme = server.protocol === 'https:' ? 'https' : 'http';
  const proxy = env[`${scheme.toUpperCase()}_PROXY`] ?? env[`${scheme}_proxy`] ?? '';
  if (proxy === '') return undefined;
  const host = hostOf(server);
  if (isLoopback(host)) return undefined;
  const port = server.port === '' ? { http: '80', https: '443' }[scheme] : server.port;
  const exempt = (env['NO_PROXY'] ?? env['no_proxy'] ?? '')
    .split(',')
    .map((entry) => entry.trim().toLowerCase())
    .filter((entry) => entry !== '');
  if (exempt.some((entry) => covers(entry, host, port))) return undefined;
  return proxy.includes('://') ? proxy : `http://${proxy}`;
}

function hostOf({ hostname }: URL): string {
  return hostname.toLowerCase().replace(/^\[(.*)\]$/, '$1');
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8);
LOOPBACK.addAddress('::1', 'ipv6');

function isLoopback(host: string): boolean {
  return host === 'localhost' || check(LOOPBACK, host);
}

/** Whether an entry of NO_PROXY covers the host. */
function covers(entry: string, host: string, port: string): boolean {
  if (entry === '*') return true;
  const [, network = '', prefix] = /^(.*)\/(\d+)$/.exec(entry) ?? [];
  const family = isIP(network);
  if (prefix !== undefined) {
    if (family === 0 || Number(prefix) > (family === 4 ? 32 : 128)) return false;
    const list = new BlockList();
    list.addSubnet(network, Number(prefix), family === 4 ? 'ipv4' : 'ipv6');
    return check(list, host);
  }
  if (isIP(entry) !== 0) return entry === host;
  const [, name = entry, only] = /^(.*?):(\d+)$/.exec(entry) ?? [];
  if (only !== undefined && only !== port) return false;
  const bare = name.replace(/^\*?\./, '').replace(/^\[(.*)\]$/, '$1');
  // A leading dot covers subdomains only.
  return (host === bare && bare === name) || host.endsWith(`.${bare}`) || host === name;
}

function check(list: BlockList, host: string): boolean {
  const family = isIP(host);
  return family !== 0 && list.check(host, family === 4 ? 'ipv4' : 'ipv6');
}
