/** What happens around a source and a sink while they run, with both made up. */
import { EventEmitter, once } from 'node:events';
import { PassThrough } from 'node:stream';
import t, { type Test } from 'tap';
import { Service, type Endpoint } from '../../src/api/generated/localv1/api.ts';
import type { BoundSink, BoundSource, RunningSink } from '../../src/cli/command.ts';
import { GLOBAL_FLAGS, type GlobalOptions } from '../../src/cli/flags/global.ts';
import { pickValues } from '../../src/cli/flags/table.ts';
import type { HangUp } from '../../src/cli/lifecycle.ts';
import { LocalPolicyCounter } from '../../src/cli/prepare.ts';
import { run } from '../../src/cli/run.ts';
import { KpngError } from '../../src/errors.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import type { LocalChange, LocalSink } from '../../src/store/local-view.ts';
import { captureLog } from '../support/captured-log.ts';
import { tcpClient } from '../support/tcp-peers.ts';
import { until } from '../support/until.ts';

const NOTHING: LocalChange = {
  view: { size: 0, get: () => undefined, entries: () => [] },
  changed: new Set(),
};

/** A sink that notes what is done to it. */
class FakeSink implements RunningSink {
  readonly steps: string[] = [];
  readonly sink: LocalSink;
  readonly reader = Promise.withResolvers<void>();
  readonly ended = this.reader.promise;
  syncError: Error | undefined;
  #closed = Promise.withResolvers<void>();

  constructor({ staysOpen = false } = {}) {
    if (!staysOpen) this.#closed.resolve();
    this.sink = {
      sync: async () => {
        if (this.syncError !== undefined) throw this.syncError;
        this.steps.push('sync');
      },
    };
  }

  close(): Promise<void> {
    this.steps.push('close');
    return this.#closed.promise;
  }

  async destroy(): Promise<void> {
    this.steps.push('destroy');
    this.#closed.resolve();
  }
}

interface Setup {
  readonly sink?: FakeSink;
  /** Runs in place of a source; by default it syncs once and waits for the signal. */
  readonly feed?: (sink: LocalSink, stop: AbortSignal) => Promise<void>;
  readonly startSource?: () => Promise<never>;
  readonly startSink?: () => Promise<never>;
  readonly globals?: Partial<GlobalOptions>;
  readonly given?: readonly string[];
  readonly servesByDefault?: boolean;
  readonly hangUp?: HangUp;
}

async function setup(t: Test, options: Setup = {}) {
  const captured = await captureLog();
  const process = Object.assign(new EventEmitter(), {
    exits: [] as number[],
    exit(code: number) {
      this.exits.push(code);
    },
  });
  const fake = options.sink ?? new FakeSink();
  const nodeNames: string[] = [];
  const source: BoundSource = {
    word: 'fake',
    options: {},
    scope: 'local',
    async start({ nodeName }) {
      nodeNames.push(nodeName);
      return options.startSource?.() ?? { run: options.feed ?? syncOnce };
    },
  };
  const sink: BoundSink = {
    word: 'to-fake',
    options: { nodeName: 'n1' },
    scope: 'local',
    servesByDefault: options.servesByDefault ?? false,
    start: async () => options.startSink?.() ?? fake,
  };
  const globals = {
    ...pickValues(GLOBAL_FLAGS, new Map()),
    drainTimeout: 60_000,
    ...options.globals,
  };
  const ended = run({
    source,
    sink,
    globals,
    given: new Set(options.given),
    log: captured.log,
    process,
    stdout: new PassThrough(),
    hangUp: options.hangUp ?? 'read-again',
  });
  t.teardown(() => process.emit('SIGTERM', 'SIGTERM'));
  const told = (msg: string): Promise<void> => until(() => captured.messages().includes(msg));
  /** Waits for the first state, sends the signal, and returns the exit code. */
  const stop = async (signal = 'SIGTERM'): Promise<number> => {
    await told('The first complete state is in place');
    process.emit(signal, signal);
    return ended;
  };
  /** The URL of a server, from its log line. */
  const url = async (msg: string): Promise<string> => {
    await told(msg);
    return String(captured.lines().find((line) => line.msg === msg)?.['url']);
  };
  return { ...captured, process, fake, ended, nodeNames, told, stop, url };
}

async function syncOnce(sink: LocalSink, stop: AbortSignal): Promise<void> {
  await sink.sync(NOTHING);
  await aborted(stop);
}

function aborted(stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    stop.addEventListener('abort', () => resolve());
  });
}

t.test('runs until a signal, then stops source and sink in order, with 0', async (t) => {
  const { process, fake, messages, nodeNames, stop } = await setup(t);
  t.equal(await stop(), 0);
  t.same(nodeNames, ['n1'], 'the source works for the node of the sink');
  t.same(fake.steps, ['sync', 'close', 'destroy']);
  t.same(messages(), ['Starting', 'The first complete state is in place', 'Stopping', 'Stopped']);
  t.same(process.eventNames(), [], 'signals are no one’s business any more');
});

t.test('a console that is closed ends the program as TERM does', async (t) => {
  const sink = new FakeSink();
  const closed = await setup(t, { sink, hangUp: 'console-closed' });
  t.equal(await closed.stop('SIGHUP'), 0);
  t.same(sink.steps, ['sync', 'close', 'destroy']);
  t.match(
    closed.lines().find(({ msg }) => msg === 'Stopping'),
    { signal: 'SIGHUP' },
  );
});

t.test('connections that outlast the drain timeout are reset', async (t) => {
  const sink = new FakeSink({ staysOpen: true });
  const globals = { drainTimeout: 10 };
  const { lines, stop } = await setup(t, { sink, globals });
  t.equal(await stop('SIGINT'), 0);
  t.same(sink.steps, ['sync', 'close', 'destroy']);
  t.match(
    lines().find(({ level }) => level === 'warn'),
    { msg: 'Drain timeout reached; closing the remaining connections', drainTimeout: '10ms' },
  );
});

t.test('without a data path, or before the first state, there is no drain delay', async (t) => {
  const { fake, stop } = await setup(t, { globals: { drainDelay: 3_600_000 } });
  t.equal(await stop(), 0);
  t.same(fake.steps, ['sync', 'close', 'destroy']);
});

t.test('a source that hangs cannot keep the program alive', async (t) => {
  const { process, ended, fake, told } = await setup(t, {
    feed: () => new Promise(() => {}),
    globals: { drainTimeout: 10 },
  });
  await told('Starting');
  process.emit('SIGTERM', 'SIGTERM');
  t.equal(await ended, 0);
  t.same(fake.steps, ['destroy']);
});

t.test('a sink that is no longer needed ends the program with 0', async (t) => {
  const { fake, ended, told } = await setup(t);
  await told('The first complete state is in place');
  fake.reader.resolve();
  t.equal(await ended, 0);
});

t.test('a source that fails permanently: 1, and all connections are reset', async (t) => {
  const { fake, ended, lines } = await setup(t, {
    feed: () => Promise.reject(new Error('beyond repair')),
  });
  t.equal(await ended, 1);
  t.same(fake.steps, ['destroy']);
  t.match(lines().at(-1), { level: 'error', msg: 'Startup failed', err: 'beyond repair' });
});

t.test('a configuration that is wrong: 2, wherever it is noticed', async (t) => {
  const wrong = new KpngError('KPNG_TLS_FILE', 'the CA file is missing');
  for (const options of [
    { startSource: () => Promise.reject(wrong) },
    { startSink: () => Promise.reject(wrong) },
    { feed: () => Promise.reject(wrong) },
  ]) {
    const { ended, lines } = await setup(t, options);
    t.equal(await ended, 2);
    t.match(lines().at(-1), { code: 'KPNG_TLS_FILE', err: 'the CA file is missing' });
  }
  const lost = new KpngError('KPNG_SOURCE_LOST', 'x');
  const { ended } = await setup(t, { feed: () => Promise.reject(lost) });
  t.equal(await ended, 1, 'that is no configuration');
});

t.test('only the first state is announced', async (t) => {
  const { ended, messages, process, fake } = await setup(t, {
    async feed(sink, stop) {
      for (let n = 0; n < 3; n += 1) await sink.sync(NOTHING);
      await aborted(stop);
    },
  });
  await until(() => fake.steps.length === 3);
  process.emit('SIGTERM', 'SIGTERM');
  await ended;
  const first = messages().filter((msg) => msg === 'The first complete state is in place');
  t.equal(first.length, 1);
});

t.test('health follows the change sets that the sink applies', async (t) => {
  const sink = new FakeSink();
  sink.syncError = new KpngError('KPNG_SINK_FAILED', 'not now');
  const again = Promise.withResolvers<void>();
  const { told, url: urlOf } = await setup(t, {
    sink,
    globals: { healthzBindAddress: { host: '127.0.0.1', port: 0 } },
    given: ['healthz-bind-address'],
    async feed(wrapped, stop) {
      await wrapped.sync(NOTHING).catch(() => {});
      await again.promise;
      await wrapped.sync(NOTHING);
      await aborted(stop);
    },
  });
  const url = await urlOf('Serving health');
  const before = await fetch(`${url}/healthz`);
  t.equal(before.status, 503);
  t.match(await before.json(), { reasons: [{ code: 'starting' }, { code: 'change-failed' }] });
  sink.syncError = undefined;
  again.resolve();
  await told('The first complete state is in place');
  const after = await fetch(`${url}/healthz`);
  t.equal(after.status, 200);
  t.match(await after.json(), { state: 'ready' });
});

t.test('a client that had connected is answered after another process took over', async (t) => {
  const handedOver = Promise.withResolvers<number>();
  const sink = Object.assign(new FakeSink(), { handedOver: handedOver.promise });
  const { told, url, ended } = await setup(t, {
    sink,
    globals: { healthzBindAddress: { host: '127.0.0.1', port: 0 } },
    given: ['healthz-bind-address'],
  });
  const { port } = new URL(await url('Serving health'));
  const client = await tcpClient(t, Number(port));
  await told('The first complete state is in place');
  handedOver.resolve(1);
  await told('Stopped');
  client.setEncoding('utf8').write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
  t.match(await once(client, 'data'), ['HTTP/1.1 200 OK']);
  t.equal(await ended, 0);
});

t.test('a sink that serves by default has its data path on the metrics page', async (t) => {
  const sink = Object.assign(new FakeSink(), {
    dataPath: {
      engine: 'fake-engine',
      portal: 'fake-portal',
      limits: DEFAULT_LIMITS,
      snapshot: () => [],
      problems: () => [{ code: 'KPNG_PORTAL_CONFLICT', count: 4 }],
    },
  });
  const { told, url: urlOf } = await setup(t, {
    sink,
    servesByDefault: true,
    globals: {
      metricsBindAddress: { host: '127.0.0.1', port: 0 },
      healthzBindAddress: undefined,
    },
  });
  await told('The first complete state is in place');
  const url = await urlOf('Serving metrics');
  const text = await (await fetch(`${url}/metrics`)).text();
  t.match(text, /kpng_userspace_build_info\{.*engine="fake-engine",portal="fake-portal"\} 1/);
  t.match(text, /kpng_userspace_problems\{code="KPNG_PORTAL_CONFLICT"\} 4/);
  t.match(text, /_no_local_endpoints_total\{traffic_policy="external"\} 0/);
  const health = (await (await fetch(`${url}/healthz`)).json()) as object;
  t.match(health, { reasons: [{ message: '4 not served (KPNG_PORTAL_CONFLICT)' }] });
});

t.test('a sink that does not serve by default opens no port', async (t) => {
  const { messages, stop } = await setup(t, {
    globals: { metricsBindAddress: { host: '127.0.0.1', port: 0 } },
  });
  await stop();
  t.notOk(messages().some((msg) => msg.startsWith('Serving')));
});

interface Described {
  readonly policy: Partial<Pick<Service, 'internalTrafficToLocal' | 'externalTrafficToLocal'>>;
  /** What its endpoints may be used for: i, e, both or nothing. */
  readonly endpoints: readonly string[];
}

function change(all: Record<string, Described>, ...changed: string[]): LocalChange {
  const entries = new Map(
    Object.entries(all).map(([key, { policy, endpoints }]) => {
      const service = Service.fromPartial({ name: key, ...policy });
      const list = endpoints.map((uses, n): [string, Endpoint] => {
        const scopes = { internal: uses.includes('i'), external: uses.includes('e') };
        return [String(n), { scopes } as Endpoint];
      });
      return [key, { key, service, endpoints: new Map(list) }];
    }),
  );
  const view = {
    size: entries.size,
    get: (key: string) => entries.get(key),
    entries: () => entries.values(),
  };
  return { view, changed: new Set(changed) };
}

const INTERNAL = { internalTrafficToLocal: true };
const EXTERNAL = { externalTrafficToLocal: true };

t.test('services whose policy leaves no endpoint are counted as they change', async (t) => {
  const counter = new LocalPolicyCounter();
  const first = {
    a: { policy: INTERNAL, endpoints: ['e'] },
    b: { policy: EXTERNAL, endpoints: [] },
    c: { policy: {}, endpoints: [] },
    d: { policy: { ...INTERNAL, ...EXTERNAL }, endpoints: ['i'] },
  };
  t.same(counter.update(change(first, 'a', 'b', 'c', 'd')), { internal: 1, external: 2 });
  const second = { ...first, a: { policy: INTERNAL, endpoints: ['e', 'ie'] } };
  t.same(counter.update(change(second, 'a')), { internal: 0, external: 2 });
  const { a, c, d } = second;
  t.same(counter.update(change({ a, c, d }, 'b')), { internal: 0, external: 1 }, 'b is gone');
  t.same(counter.update(change({ a, c, d })), { internal: 0, external: 1 });
});
