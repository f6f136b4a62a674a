import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import {
  limitChanged,
  listenerFailed,
  listenerOpened,
  tcpAccepted,
} from '../../../src/proxysocket/events.ts';
import * as wire from '../../../src/proxysocket/pool/protocol.ts';
import type { Teardown } from '../../support/sockets.ts';
import { KpngError } from '../../../src/errors.ts';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { linuxTest } from '../../support/linux-sys.ts';
import t from 'tap';

function setUp(t: Teardown) {
  const { port1, port2 } = new MessageChannel();
  const control = new Int32Array(new SharedArrayBuffer(wire.CONTROL_BYTES));
  const outbox = new wire.Outbox(port1, control);
  const wants = (...channels: object[]): void => {
    control[wire.CONTROL.subscriptions] = wire.CHANNELS.reduce<number>(
      (bits, channel, index) => bits | (channels.includes(channel) ? 1 << index : 0),
      0,
    );
    outbox.subscribe();
  };
  t.teardown(() => {
    wants();
    port1.close();
  });
  return {
    outbox,
    control,
    wants,
    /** What a turn of the loop has posted. */
    next: (): wire.TurnReport | undefined => {
      outbox.flush(0);
      const report = receiveMessageOnPort(port2)?.message as wire.Report | undefined;
      return report?.kind === 'turn' ? report : undefined;
    },
  };
}

const LISTEN = { address: '127.0.0.1', port: 80, traffic: 'internal' } as const;
const change = (value: number) => ({ limit: 'max-connections' as const, value, reached: true });

t.test('events are carried while someone listens in the other thread', (t) => {
  const { wants, next } = setUp(t);
  t.equal(limitChanged.hasSubscribers, false);
  wants(limitChanged);
  t.equal(limitChanged.hasSubscribers, true);
  t.equal(tcpAccepted.hasSubscribers, false, 'so that no one makes messages for nothing');
  limitChanged.publish(change(1));
  limitChanged.publish(change(2));
  const index = wire.CHANNELS.indexOf(limitChanged);
  t.same(next()?.events, [
    [index, change(1)],
    [index, change(2)],
  ]);
  // The main thread itself opens and closes listeners.
  wants(listenerOpened, listenerFailed);
  limitChanged.publish(change(3));
  const about = { servicePort: 'd/web', protocol: 'TCP', listen: LISTEN } as const;
  listenerOpened.publish(about);
  t.equal(next(), undefined);
  const error = new Error('taken');
  listenerFailed.publish({ ...about, code: 'KPNG_LISTEN_FAILED', error, retryInMs: 1 });
  t.match(next()?.events, [[wire.CHANNELS.indexOf(listenerFailed), { retryInMs: 1 }]]);
  t.end();
});

t.test('when the other thread does not keep up, events are counted instead', (t) => {
  const { outbox, wants, next, control } = setUp(t);
  wants(limitChanged);
  for (let value = 0; value < 5000; value += 1) limitChanged.publish(change(value));
  t.equal(next()?.events?.length, 4096);
  outbox.done({ id: 1, error: wire.encodeError(new Error('not done')) });
  t.match(next(), { done: [{ id: 1, error: { message: 'not done' } }] });

  let posted = 0;
  for (let value = 0; value < 1000; value += 1) {
    limitChanged.publish(change(value));
    if (next() !== undefined) posted += 1;
  }
  t.ok(posted < 64, `${posted} reports, and then none`);
  outbox.done({ id: 2 });
  const told = next();
  t.match(told, { done: [{ id: 2 }] }, 'what matters is always reported');
  t.ok((told?.eventsDropped ?? 0) > 900, `${told?.eventsDropped} events were not`);

  Atomics.add(control, wire.CONTROL.taken, posted + 4);
  limitChanged.publish(change(9));
  t.equal(next()?.events?.length, 1, 'until it has caught up');
  t.end();
});

/** As a message looks after its way to another thread. */
function posted(message: object): object {
  const { port1, port2 } = new MessageChannel();
  port1.postMessage(wire.encodeMessage(message), []);
  const received = receiveMessageOnPort(port2) as { message: object };
  port1.close();
  return wire.decodeMessage(received.message);
}

t.test('errors keep their class, code, cause and what else users see', (t) => {
  const [code, servicePort] = ['KPNG_LISTEN_ADDRESS_IN_USE', 'ns/web:http'] as const;
  const cause = Object.assign(new Error('bind EADDRINUSE'), { code: 'EADDRINUSE' });
  const error = new KpngError(code, 'cannot listen', { cause, servicePort });
  const arrived = posted({ listen: LISTEN, error, retryInMs: 5 }) as { error: KpngError };
  t.ok(arrived.error instanceof KpngError);
  t.equal(arrived.error.retried, true);
  t.match(arrived, { listen: LISTEN, retryInMs: 5 });
  t.match(arrived.error, { code, message: 'cannot listen', servicePort, stack: error.stack });
  t.match(arrived.error.cause, { code: 'EADDRINUSE', message: 'bind EADDRINUSE' });

  const other = (posted({ error: cause }) as { error: Error }).error;
  t.ok(other instanceof Error && !(other instanceof KpngError));
  t.match(other, { code: 'EADDRINUSE', message: 'bind EADDRINUSE' });
  t.same(posted(change(3)), change(3), 'without an error it is carried as it is');
  const carried = (thrown: unknown) => wire.decodeError(wire.encodeError(thrown));
  t.match(carried(new TypeError('x')), { name: 'TypeError', message: 'x' });
  t.match(carried('thrown'), { message: 'thrown' });
  t.match(carried(new Error('a', { cause: 'b' })), { cause: { message: 'b' } });
  t.end();
});

/** The ends of threads that make system calls, while V8 optimises these. */

const CHILD = join(import.meta.dirname, '../linux/ffi-child.ts');
/** Without the flag, one of the first twenty kills the process as a rule. */
const WORKERS = 45;

linuxTest('threads do not take the process with them, however they end', async (t) => {
  const run = promisify(execFile)(process.execPath, [CHILD, String(WORKERS)], { env: {} });
  t.match(await run, { stdout: `${WORKERS} ended` });
});
