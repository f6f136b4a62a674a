/** Finds out what became of connections that failed while endpoints were being killed. */
import type { Visit } from './client.ts';

/** One life of an endpoint: from its start until it was killed. */
export interface Life {
  /** Its greeting. */
  readonly id: string;
  readonly address: string;
  /** When it was started (`Date.now()`), a while before it could accept anything. */
  readonly begun: number;
  /** Peers (`ip:port`) that it accepted. */
  readonly accepted: ReadonlySet<string>;
  /** Between these two times (`Date.now()`) it came to its end; undefined while it lives. */
  readonly killed: { readonly from: number; readonly until: number } | undefined;
}

/** What the proxy says about a client. */
export interface ProxyEntry {
  /** `ip:port` of the endpoint that its connection was relayed to last; undefined: it was refused. */
  readonly endpoint: string | undefined;
  /** Where the proxy's own connection came from: the endpoint's peer. */
  readonly peer: string;
  /** As `Date.now()`. */
  readonly at: number;
}

/**
 * - `greeted`, `accepted`, `backlog`: the connection was cut with its endpoint, which was killed. It had
 *   greeted the client; it had accepted the connection; or only its kernel had.
 * - `failed`: anything else. An endpoint was alive, and the connection should have reached it.
 */
export type Verdict = 'greeted' | 'accepted' | 'backlog' | 'failed';

/** Times are read in different processes, to the millisecond. */
const BLUR = 2;

export function evaluate(
  visit: Visit,
  entry: ProxyEntry | undefined,
  lives: readonly Life[],
): { verdict: Verdict; why: string } {
  const { greetedBy, endedAt } = visit;
  const wasKilled = ({ killed }: Life): boolean =>
    killed !== undefined && killed.from <= endedAt + BLUR;
  const failed = (why: string) => ({
    verdict: 'failed' as const,
    why: `${visit.error ?? 'closed'}: ${why}`,
  });

  if (greetedBy !== undefined) {
    const life = lives.find(({ id }) => id === greetedBy);
    if (life !== undefined && wasKilled(life)) return { verdict: 'greeted', why: life.id };
    return failed(`${greetedBy} greeted it and was not killed`);
  }
  if (entry === undefined) return failed('the proxy says nothing about it');
  const { endpoint, peer, at } = entry;
  if (endpoint === undefined) return failed('the proxy turned it away');
  // One life as a rule, or two of which one has just ended: ports are used again by later ones.
  const lived = lives.filter(
    ({ address, begun, killed }) =>
      endpoint.startsWith(`${address}:`) &&
      begun <= at + BLUR &&
      (killed === undefined || at <= killed.until + BLUR),
  );
  const host = lived.find(({ accepted }) => accepted.has(peer));
  if (host !== undefined) {
    return wasKilled(host)
      ? { verdict: 'accepted', why: host.id }
      : failed(`${host.id} accepted it and was not killed`);
  }
  const end = lived.find(wasKilled);
  if (end === undefined) return failed(`${endpoint} was not killed while it had the connection`);
  // What only the kernel has taken is reset. A FIN comes of a process that had accepted the connection,
  // and was killed before it could write that down.
  return { verdict: visit.error === undefined ? 'accepted' : 'backlog', why: end.id };
}

/** Reads what the proxy logged with `-v=4 --logging-format=json`: the last word on each client address. */
export function readProxyLog(text: string): {
  clients: ReadonlyMap<string, ProxyEntry>;
  /** Connections that an endpoint lost and that another one took. */
  rescued: number;
} {
  const clients = new Map<string, ProxyEntry>();
  let rescued = 0;
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const entry = JSON.parse(line) as Record<string, string>;
    const { msg, endpoint } = entry;
    const at = Date.parse(entry['time'] ?? '');
    if (msg === 'Creating proxy between remote and local addresses') {
      const { inRemoteAddress = '', outLocalAddress: peer = '' } = entry;
      clients.set(addressOf(inRemoteAddress), { endpoint, peer, at });
    } else if (entry['code'] !== undefined && entry['remoteAddress'] !== undefined) {
      clients.set(addressOf(entry['remoteAddress']), { endpoint: undefined, peer: '', at });
    } else if (msg === 'Dial failed' && entry['reason'] === 'reset') rescued += 1;
  }
  return { clients, rescued };
}

function addressOf(hostPort: string): string {
  return hostPort.slice(0, hostPort.lastIndexOf(':'));
}
