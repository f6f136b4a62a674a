import t from 'tap';
import { delivererTo } from '../../src/store/deliver.ts';
import { sinkFailed, sinkRecovered } from '../../src/store/events.ts';
import { LocalState } from '../../src/store/local-state.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { service } from '../support/messages.ts';
import { RecordingSink } from '../support/recording-sink.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

const boom = new Error('nft is not there');

function setup() {
  const clock = new FakeClock();
  const sink = new RecordingSink({ automatic: false });
  const deliverer = delivererTo(sink, { clock, random: () => 0.5 });
  const state = new LocalState();
  const set = (...keys: string[]) => {
    for (const key of keys) {
      state.apply({ kind: 'entry', entry: { table: 'services', key }, value: service(key) });
    }
    return deliverer.deliver(() => state.sync());
  };
  /** The keys of the next call, which is settled. */
  const next = async (error?: Error): Promise<string[]> => {
    const call = await sink.next();
    call.settle(error);
    return call.changed;
  };
  return { clock, sink, deliverer, state, set, next };
}

t.test('rejected keys are redelivered with growing delays, without a new change', async (t) => {
  const { sink, set, next, clock } = setup();
  const failures = collect(t, sinkFailed);
  const recoveries = collect(t, sinkRecovered);
  const delivery = set('d/a');
  await next(boom);
  const error = await delivery;
  t.match(error, { code: 'KPNG_SINK_FAILED', message: /1 service .*nft is not there/ });
  t.equal(error?.cause, boom);
  clock.advance(999);
  t.equal(sink.unread, 0);
  clock.advance(1);
  t.strictSame(await next(boom), ['d/a']);
  await until(() => clock.pending > 0);
  clock.advance(1600);
  await next();
  await until(() => recoveries.length > 0);
  t.match(failures, [
    { retryInMs: 1000, waiting: 1 },
    { retryInMs: 1600, waiting: 1 },
  ]);
  t.strictSame(recoveries, [{ failures: 2 }]);
  t.equal(clock.pending, 0);
});

t.test('a new change set includes rejected keys, until they are taken', async (t) => {
  const { sink, set, next, clock } = setup();
  let delivery = set('d/a', 'd/b');
  await next(boom);
  await delivery;
  delivery = set('d/c');
  const call = await sink.next();
  t.strictSame(call.changed, ['d/a', 'd/b', 'd/c']);
  t.equal(clock.pending, 0, 'and takes the place of the retry');
  call.settle(boom);
  await delivery;
  delivery = set();
  t.strictSame(await next(), ['d/a', 'd/b', 'd/c']);
  await delivery;
  delivery = set('d/d');
  t.strictSame(await next(), ['d/d']);
  await delivery;
});

t.test('also retried: a set without services, and one that an empty one followed', async (t) => {
  for (const keys of [[], ['d/a']]) {
    const { set, next, deliverer, clock } = setup();
    const first = set(...keys);
    await next(boom);
    t.equal((await first)?.code, 'KPNG_SINK_FAILED');
    await deliverer.deliver(async () => undefined);
    clock.advance(1000);
    t.strictSame(await next(), keys);
  }
});

t.test('close waits for the sink and makes no further attempt', async (t) => {
  const { sink, set, clock, deliverer, state } = setup();
  const delivery = set('d/a');
  const call = await sink.next();
  const queued = set('d/b');
  let closed = false;
  const closing = deliverer.close().then(() => (closed = true));
  await new Promise(setImmediate);
  t.notOk(closed);
  call.settle(boom);
  await Promise.all([delivery, queued, closing]);
  t.equal(clock.pending, 0, 'no retry is planned');
  t.equal(sink.unread, 0);
  t.equal(state.size, 1, 'a change set that came too late is not completed');
  await deliverer.close();
});
