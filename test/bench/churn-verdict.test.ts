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

/** The proxy gave it to birch at 990 ms. */
const RELAYED: ProxyEntry = { endpoint: `${BIRCH}:80`, peer: '127.0.0.1:4000', at: 990 };

function life(
  id: string,
  killed: Life['killed'],
  accepted: readonly string[] = [],
  begun = 0,
): Life {
  return { id, address: BIRCH, begun, accepted: new Set(accepted), killed };
}

const KILLED = { from: 995, until: 999 };

t.test('connections lost with a killed endpoint', (t) => {
  const { greetedBy: _, ...rest } = BROKEN;
  const greeted = { ...rest, greetedBy: 'birch-2' };
  t.same(evaluate(greeted, undefined, [life('birch-2', KILLED)]), {
    verdict: 'greeted',
    why: 'birch-2',
  });
  const accepted = life('birch-2', KILLED, [RELAYED.peer]);
  t.equal(evaluate(BROKEN, RELAYED, [accepted]).verdict, 'accepted');
  t.equal(evaluate(BROKEN, RELAYED, [life('birch-2', KILLED)]).verdict, 'backlog');
  const closed = { ...BROKEN, error: undefined };
  t.equal(evaluate(closed, RELAYED, [life('birch-2', KILLED)]).verdict, 'accepted');
  t.end();
});

t.test('connections that should have been served', (t) => {
  const verdictOf = (entry: ProxyEntry | undefined, lives: readonly Life[]) =>
    evaluate(BROKEN, entry, lives);
  const why = /^ECONNRESET: /;
  const alive = life('birch-1', undefined);
  t.match(verdictOf(undefined, [alive]), { verdict: 'failed', why });
  t.match(verdictOf({ ...RELAYED, endpoint: undefined }, [life('b', KILLED)]), {
    verdict: 'failed',
    why: /turned it away/,
  });
  t.match(verdictOf(RELAYED, [alive]), { verdict: 'failed', why: /was not killed/ });
  t.match(verdictOf(RELAYED, [life('b', undefined, [RELAYED.peer])]), {
    verdict: 'failed',
    why: /b accepted it/,
  });
  t.equal(
    verdictOf(RELAYED, [life('b', { from: 1100, until: 1110 })]).verdict,
    'failed',
    'killed only later',
  );
  t.equal(
    verdictOf(RELAYED, [life('b', { from: 900, until: 950 })]).verdict,
    'failed',
    'gone before it could have taken it',
  );
  t.equal(
    verdictOf(RELAYED, [{ ...life('cedar-1', KILLED), address: '127.0.0.3' }]).verdict,
    'failed',
    'another one was killed',
  );
  t.equal(
    evaluate({ ...BROKEN, greetedBy: 'b' }, RELAYED, [life('b', undefined)]).verdict,
    'failed',
  );
  t.end();
});

t.test('a port that was used again belongs to the life that it was relayed in', (t) => {
  const former = life('birch-1', { from: 500, until: 510 }, [RELAYED.peer]);
  const backlog = { verdict: 'backlog', why: 'birch-2' };
  t.equal(
    evaluate(BROKEN, RELAYED, [former, life('birch-2', undefined, [], 520)]).verdict,
    'failed',
  );
  t.same(evaluate(BROKEN, RELAYED, [former, life('birch-2', KILLED, [], 520)]), backlog);
  const later = life('birch-3', undefined, [RELAYED.peer], 1005);
  t.same(evaluate(BROKEN, RELAYED, [life('birch-2', KILLED), later]), backlog);
  t.end();
});

t.test('in the proxy’s log, the last line counts', (t) => {
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
  t.end();
});
