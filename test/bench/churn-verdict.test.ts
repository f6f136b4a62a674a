import t from 'tap';
import type { Visit } from '../../bench/integrity/churn/client.ts';
import {
  evaluate,
  readProxyLog,
  type Life,
  type ProxyEntry,
} from '../../bench/integrity/churn/verdict.ts';

const BIRCH = '127.0.0.2';

/** A connection that broke at 1,000 ms, before anyone had greeted it. */
const BROKEN: Visit = {
  from: '127.9.0.1',
  manner: 'asks',
  greetedBy: undefined,
  served: false,
  error: 'ECONNRESET',
  endedAt: 1000,
};
const { greetedBy: _, ...ungreeted } = BROKEN;
const GREETED: Visit = { ...ungreeted, greetedBy: 'b' };

/** The proxy gave it to birch at 990 ms. */
const RELAYED: ProxyEntry = { endpoint: `${BIRCH}:80`, peer: '127.0.0.1:4000', at: 990 };
const REFUSED: ProxyEntry = { ...RELAYED, endpoint: undefined };

function life(id: string, killed: Life['killed'], hasAccepted = false, begun = 0): Life {
  return {
    id,
    address: BIRCH,
    begun,
    accepted: new Set(hasAccepted ? [RELAYED.peer] : []),
    killed,
  };
}

const KILLED = { from: 995, until: 999 };
const LATER = { from: 1100, until: 1110 };
const BEFORE = { from: 900, until: 950 };
const cedar = { ...life('cedar', KILLED), address: '127.0.0.3' };
const earlier = life('b', { from: 500, until: 510 }, true);

const CASES: readonly (readonly [string, Visit, ProxyEntry | undefined, readonly Life[]])[] = [
  ['greeted', GREETED, undefined, [life('b', KILLED)]],
  ['accepted', BROKEN, RELAYED, [life('b', KILLED, true)]],
  ['accepted', { ...BROKEN, error: undefined }, RELAYED, [life('b', KILLED)]],
  ['backlog', BROKEN, RELAYED, [life('b', KILLED)]],
  ['failed: never reached an endpoint', BROKEN, undefined, [life('b', undefined)]],
  ['failed: refused', BROKEN, REFUSED, [life('b', KILLED)]],
  ['failed: not killed', BROKEN, RELAYED, [life('b', undefined)]],
  ['failed: accepted by one that lives', BROKEN, RELAYED, [life('b', undefined, true)]],
  ['failed: killed only later', BROKEN, RELAYED, [life('b', LATER)]],
  ['failed: gone before', BROKEN, RELAYED, [life('b', BEFORE)]],
  ['failed: another one was killed', BROKEN, RELAYED, [cedar]],
  ['failed: greeted by one that lives', GREETED, RELAYED, [life('b', undefined)]],
  // A port that was used again belongs to the life that it was relayed in.
  ['failed: the next life', BROKEN, RELAYED, [earlier, life('c', undefined, false, 520)]],
  ['backlog', BROKEN, RELAYED, [earlier, life('c', KILLED, false, 520)]],
  ['backlog', BROKEN, RELAYED, [life('b', KILLED), life('c', undefined, true, 1005)]],
];

t.test('connections are lost with a killed endpoint, or should have been served', async (t) => {
  for (const [expected, visit, entry, lives] of CASES) {
    t.equal(evaluate(visit, entry, lives).verdict, expected.split(':')[0], expected);
  }
});

t.test('in the proxy’s log, the last line counts', async (t) => {
  const time = '2026-01-01T00:00:00.000Z';
  const relayed = {
    time,
    msg: 'Creating proxy between remote and local addresses',
    outLocalAddress: '127.0.0.1:4000',
  };
  const { clients, rescued } = readProxyLog(
    [
      { ...relayed, inRemoteAddress: '127.9.0.1:1', endpoint: '127.0.0.2:80' },
      { time, msg: 'Dial failed', reason: 'reset', endpoint: '127.0.0.2:80' },
      { time, msg: 'Dial failed', reason: 'refused', endpoint: '127.0.0.2:80' },
      { ...relayed, inRemoteAddress: '127.9.0.1:1', endpoint: '127.0.0.3:80' },
      { time, msg: 'x', code: 'KPNG_CONNECT_FAILED', remoteAddress: '127.9.0.2:7' },
    ]
      .map((entry) => `${JSON.stringify(entry)}\n`)
      .join(''),
  );
  t.equal(rescued, 1);
  t.match(clients.get('127.9.0.1'), { endpoint: '127.0.0.3:80', at: Date.parse(time) });
  t.match(clients.get('127.9.0.2'), { endpoint: undefined });
});
