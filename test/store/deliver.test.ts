import t from 'tap';
import { Deliverer } from '../../src/store/deliver.ts';
import { sinkFailed, sinkRecovered, type SinkFailed } from '../../src/store/events.ts';
import { LocalState } from '../../src/store/local-state.ts';
import type { LocalChange, LocalSink } from '../../src/store/local-view.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/until.ts';
import { service } from '../support/messages.ts';

/** A sink whose every call is settled by the test. */
class HeldSink implements LocalSink {
  readonly calls: { changed: string[]; size: number; settle: (error?: Error) => void }[] = [];
  #waiting: (() => void)[] = [];

  sync({ view, changed }: LocalChange): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.calls.push({
      changed: [...changed].sort(),
      size: view.size,
      settle: (error) => (error ? reject(error) : resolve()),
    });
    for (const wake of this.#waiting.splice(0)) wake();
    return promise;
  }

  /** The nth call, counted from 1, when it comes. */
  async call(n: number) {
    for (;;) {
      const call = this.calls[n - 1];
      if (call) return call;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }
}

function setup() {
  const clock = new FakeClock();
  const sink = new HeldSink();
  const deliverer = new Deliverer(sink, { clock, random: () => 0.5 });
  const state = new LocalState();
  const set = (...keys: string[]) => {
    for (const key of keys) state.apply({ kind: 'service', ref: key, value: service(key) });
    return deliverer.deliver(() => state.sync());
  };
  return { clock, sink, deliverer, state, set };
}

const boom = new Error('nft is not there');

t.test('a change set is handed over, and delivery ends with the sink', async (t) => {
  const { sink, set, clock } = setup();
  let done = false;
  const delivery = set('d/a').then((error) => {
    done = true;
    return error;
  });
  const call = await sink.call(1);
  t.strictSame(call.changed, ['d/a']);
  t.notOk(done);
  call.settle();
  t.equal(await delivery, undefined);
  t.equal(clock.pending, 0);
});

t.test('rejected keys are redelivered with growing delays, without a new change', async (t) => {
  const { sink, set, clock } = setup();
  const failures: SinkFailed[] = [];
  let recovered = 0;
  const onFailed = (event: SinkFailed) => failures.push(event);
  const onRecovered = (event: { failures: number }) => (recovered = event.failures);
  sinkFailed.subscribe(onFailed);
  sinkRecovered.subscribe(onRecovered);
  t.teardown(() => sinkFailed.unsubscribe(onFailed) && sinkRecovered.unsubscribe(onRecovered));

  const delivery = set('d/a');
  (await sink.call(1)).settle(boom);
  const error = await delivery;
  t.equal(error?.code, 'KPNG_SINK_FAILED');
  t.equal(error?.cause, boom);
  t.match(error?.message, /1 service .*nft is not there/);

  clock.advance(999);
  t.equal(sink.calls.length, 1);
  clock.advance(1);
  const again = await sink.call(2);
  t.strictSame(again.changed, ['d/a']);
  again.settle(boom);
  while (clock.pending === 0) await new Promise(setImmediate);
  clock.advance(1600);
  (await sink.call(3)).settle();
  await until(() => recovered > 0);

  t.strictSame(
    failures.map(({ retryInMs, waiting }) => [retryInMs, waiting]),
    [
      [1000, 1],
      [1600, 1],
    ],
  );
  t.equal(recovered, 2);
  t.equal(clock.pending, 0);
});

t.test('a new change set includes rejected keys', async (t) => {
  const { sink, set, clock } = setup();
  const first = set('d/a', 'd/b');
  (await sink.call(1)).settle(boom);
  await first;
  const second = set('d/c');
  const call = await sink.call(2);
  t.strictSame(call.changed, ['d/a', 'd/b', 'd/c']);
  t.equal(clock.pending, 0, 'and takes the place of the retry');
  call.settle(boom);
  await second;
  const third = set();
  const last = await sink.call(3);
  t.strictSame(last.changed, ['d/a', 'd/b', 'd/c']);
  last.settle();
  await third;
  const fourth = set('d/d');
  const after = await sink.call(4);
  t.strictSame(after.changed, ['d/d'], 'nothing is kept once it was taken');
  after.settle();
  await fourth;
});

t.test('a change set that comes during a retry waits for it', async (t) => {
  const { sink, set, clock, state } = setup();
  const first = set('d/a');
  (await sink.call(1)).settle(boom);
  await first;
  clock.advance(1000);
  const retry = await sink.call(2);
  const second = set('d/b');
  t.equal(state.size, 1);
  retry.settle();
  const next = await sink.call(3);
  t.strictSame(next.changed, ['d/b']);
  next.settle();
  await second;
});

t.test('a failed first change set without services is retried too', async (t) => {
  const { sink, set, clock } = setup();
  const first = set();
  (await sink.call(1)).settle(boom);
  t.equal((await first)?.code, 'KPNG_SINK_FAILED');
  clock.advance(1000);
  const retry = await sink.call(2);
  t.strictSame(retry.changed, []);
  retry.settle();
});

t.test('a sink that throws is treated like one that rejects', async (t) => {
  const thrower = new Deliverer(
    {
      sync() {
        throw boom;
      },
    },
    { clock: new FakeClock() },
  );
  t.equal((await thrower.deliver(() => new LocalState().sync()))?.cause, boom);
});

t.test('waits for a slow change set, and delivers nothing if there is none', async (t) => {
  const { sink, set, deliverer } = setup();
  const ready = Promise.withResolvers<LocalChange | undefined>();
  const slow = deliverer.deliver(() => ready.promise);
  const behind = set('d/b');
  await new Promise(setImmediate);
  t.equal(sink.calls.length, 0, 'what comes later waits');
  ready.resolve(undefined);
  t.equal(await slow, undefined);
  const call = await sink.call(1);
  t.strictSame(call.changed, ['d/b'], 'the sink was asked once');
  call.settle();
  await behind;
});

t.test('rejected keys are retried even if a change set meanwhile was empty', async (t) => {
  const { sink, set, deliverer, clock } = setup();
  const first = set('d/a');
  (await sink.call(1)).settle(boom);
  await first;
  await deliverer.deliver(async () => undefined);
  clock.advance(1000);
  const retry = await sink.call(2);
  t.strictSame(retry.changed, ['d/a']);
  retry.settle();
});

t.test('close waits for the sink and makes no further attempt', async (t) => {
  const { sink, set, clock, deliverer, state } = setup();
  const delivery = set('d/a');
  const call = await sink.call(1);
  const queued = set('d/b');
  let closed = false;
  const closing = deliverer.close().then(() => (closed = true));
  await new Promise(setImmediate);
  t.notOk(closed);
  call.settle(boom);
  await Promise.all([delivery, queued, closing]);
  t.equal(clock.pending, 0, 'no retry is planned');
  t.equal(sink.calls.length, 1);
  t.equal(state.size, 1, 'a change set that came too late is not completed');
  await deliverer.close();
});
