/** What happens around a source and a sink while they run, with both made up. */
import { EventEmitter, once } from 'node:events';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import t, { type Test } from 'tap';
import type { ProxySubject } from '../../src/admin/subject.ts';
import { Service, type Endpoint } from '../../src/api/generated/localv1/api.ts';
import type { BoundSink, BoundSource, RunningSink } from '../../src/cli/command.ts';
import { GLOBAL_FLAGS, type GlobalOptions } from '../../src/cli/flags/global.ts';
import { pickValues } from '../../src/cli/flags/table.ts';
import { localPolicyCounter } from '../../src/cli/prepare.ts';
import { run } from '../../src/cli/run.ts';
import { KpngError } from '../../src/errors.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { LocalChange, LocalSink } from '../../src/store/local-view.ts';
import { captureLog } from '../support/captured-log.ts';
import { shortDir } from '../support/short-dir.ts';
import { tcpClient } from '../support/tcp-peers.ts';
import { until } from '../support/until.ts';

const NOTHING: LocalChange = {
  view: { size: 0, get: () => undefined, entries: () => [] },
  changed: new Set(),
};

interface Setup {
  /** Runs in place of a source; by default it syncs three times and waits for the signal. */
  readonly feed?: (sink: LocalSink, stop: AbortSignal) => Promise<void>;
  readonly startSource?: () => Promise<never>;
  readonly sink?: Partial<RunningSink>;
  readonly startSink?: () => Promise<never>;
  readonly globals?: Partial<GlobalOptions>;
}

/** A source and a sink that note what is done to them, with health on a free port. */
async function setup(t: Test, options: Setup = {}) {
  const captured = await captureLog();
  const process = Object.assign(new EventEmitter(), { exit: () => undefined });
  const steps: string[] = [];
  const step = async (name: string): Promise<void> => void steps.push(name);
  const source: BoundSource = {
    word: 'fake',
    options: {},
    scope: 'local',
    async start({ nodeName }) {
      await step(`start for ${nodeName}`);
      return options.startSource?.() ?? { run: options.feed ?? syncThrice };
    },
  };
  const running: RunningSink = {
    sink: { sync: () => step('sync') },
    close: () => step('close'),
    destroy: () => step('destroy'),
    ...options.sink,
  };
  const sink: BoundSink = {
    word: 'to-fake',
    options: { nodeName: 'n1' },
    scope: 'local',
    start: async () => options.startSink?.() ?? running,
  };
  const healthzBindAddress = { host: '127.0.0.1', port: 0 };
  const defaults = pickValues(GLOBAL_FLAGS, new Map());
  const globals = { ...defaults, healthzBindAddress, adminSocket: '' };
  const ended = run({
    source,
    sink,
    globals: { ...globals, ...options.globals },
    given: new Set(['healthz-bind-address', 'admin-socket']),
    log: captured.log,
    process,
    stdout: new PassThrough(),
    hangUp: 'console-closed',
    command: [],
    settings: [],
  });
  t.teardown(() => process.emit('SIGTERM', 'SIGTERM'));
  const told = (msg: string): Promise<void> => until(() => captured.messages().includes(msg));
  /** The URL of the health server. */
  const url = async (): Promise<string> => {
    await told('Serving health');
    return String(captured.lines().find(({ msg }) => msg === 'Serving health')?.['url']);
  };
  return { ...captured, process, steps, ended, told, url };
}

async function syncThrice(sink: LocalSink, stop: AbortSignal): Promise<void> {
  for (let n = 0; n < 3; n += 1) await sink.sync(NOTHING);
  await once(stop, 'abort');
}

t.test('runs until a signal, then stops source and sink in order, with 0', async (t) => {
  // Without a data path, there is no drain delay.
  const globals = { drainDelay: 3_600_000 };
  const { process, steps, messages, told, url, ended } = await setup(t, { globals });
  await Promise.all([told('The first complete state is in place'), url()]);
  process.emit('SIGTERM', 'SIGTERM');
  t.equal(await ended, 0);
  t.same(steps, ['start for n1', 'sync', 'sync', 'sync', 'close', 'destroy']);
  t.same(
    messages().filter((msg) => msg !== 'Serving health'),
    ['Starting', 'The first complete state is in place', 'Stopping', 'Stopped'],
  );
  t.same(process.eventNames(), [], 'signals are no one’s business any more');
});

t.test('a failure ends it with 1, a wrong configuration with 2', async (t) => {
  const wrong = new KpngError('KPNG_TLS_FILE', 'the CA file is missing');
  const kubeconfig = new KpngError('KPNG_KUBECONFIG', 'there is no context nope');
  const lost = new KpngError('KPNG_SOURCE_LOST', 'beyond repair');
  const cases: [Setup, number, KpngError][] = [
    [{ startSource: () => Promise.reject(wrong) }, 2, wrong],
    [{ startSink: () => Promise.reject(wrong) }, 2, wrong],
    [{ feed: () => Promise.reject(kubeconfig) }, 2, kubeconfig],
    [{ feed: () => Promise.reject(lost) }, 1, lost],
  ];
  for (const [options, code, error] of cases) {
    const { ended, lines, steps } = await setup(t, options);
    t.equal(await ended, code);
    const last = { level: 'error', msg: 'Startup failed', err: error.message, code: error.code };
    t.match(lines().at(-1), last);
    t.equal(steps.at(-1), options.startSink === undefined ? 'destroy' : undefined);
  }
});

t.test('a stop fits into the time that Windows leaves a closed console', async (t) => {
  const counters = { ...newCounters(), active: 2 };
  const open = { name: 'ns/a', protocol: 'TCP', listeners: [], endpoints: 1, counters } as const;
  const proxy = { engine: { snapshot: () => [open] } } as unknown as ProxySubject;
  const globals = { drainDelay: 3_600_000, drainTimeout: 3_600_000 };
  const { process, lines, told, ended } = await setup(t, { sink: { proxy }, globals });
  await told('The first complete state is in place');
  process.emit('SIGHUP', 'SIGHUP');
  t.equal(await ended, 0);
  const left = { msg: 'Waiting for connections to end', connections: 2, cutIn: '4s' };
  t.match(lines().slice(-3), [{ msg: 'Stopping', signal: 'SIGHUP' }, left, { msg: 'Stopped' }]);
});

t.test('health follows the change sets that the sink applies', async (t) => {
  let works = false;
  const again = Promise.withResolvers<void>();
  const sync = async (): Promise<void> => {
    if (!works) throw new KpngError('KPNG_SINK_FAILED', 'not now');
  };
  const { told, url: urlOf } = await setup(t, {
    sink: { sink: { sync } },
    async feed(sink, stop) {
      await sink.sync(NOTHING).catch(() => {});
      await again.promise;
      await syncThrice(sink, stop);
    },
  });
  const url = await urlOf();
  const before = await fetch(`${url}/healthz`);
  t.equal(before.status, 503);
  t.match(await before.json(), { reasons: [{ code: 'starting' }, { code: 'change-failed' }] });
  works = true;
  again.resolve();
  await told('The first complete state is in place');
  const after = await fetch(`${url}/healthz`);
  t.equal(after.status, 200);
  t.match(await after.json(), { state: 'ready' });
});

t.test('a client that had connected is answered after another process took over', async (t) => {
  const handedOver = Promise.withResolvers<number>();
  const { told, url, ended } = await setup(t, {
    sink: { handedOver: handedOver.promise },
    globals: { adminSocket: join(shortDir(t), 'run', 'admin') },
  });
  const { port } = new URL(await url());
  const client = await tcpClient(t, Number(port));
  await told('The first complete state is in place');
  handedOver.resolve(1);
  await told('Stopped');
  client.setEncoding('utf8').write('GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n');
  t.match(await once(client, 'data'), ['HTTP/1.1 200 OK']);
  t.equal(await ended, 0);
});

type Policy = Partial<Pick<Service, 'internalTrafficToLocal' | 'externalTrafficToLocal'>>;

/** `all`: each service's policy, and what its endpoints may be used for: i, e or both. */
function change(all: Record<string, [Policy, ...string[]]>, ...changed: string[]): LocalChange {
  const entries = new Map(
    Object.entries(all).map(([key, [policy, ...uses]]) => {
      const endpoints = uses.map((each, n): [string, Endpoint] => {
        const scopes = { internal: each.includes('i'), external: each.includes('e') };
        return [String(n), { scopes } as Endpoint];
      });
      const service = Service.fromPartial({ name: key, ...policy });
      return [key, { key, service, endpoints: new Map(endpoints) }];
    }),
  );
  const get = (key: string) => entries.get(key);
  return {
    view: { size: entries.size, get, entries: () => entries.values() },
    changed: new Set(changed),
  };
}

t.test('services whose policy leaves no endpoint are counted as they change', async (t) => {
  const internal = { internalTrafficToLocal: true };
  const external = { externalTrafficToLocal: true };
  const count = localPolicyCounter();
  const b: [Policy] = [external];
  const rest: Record<string, [Policy, ...string[]]> = {
    c: [{}],
    d: [{ ...internal, ...external }, 'i'],
  };
  const first = change({ a: [internal, 'e'], b, ...rest }, 'a', 'b', 'c', 'd');
  t.same(count(first), { internal: 1, external: 2 });
  const a: [Policy, ...string[]] = [internal, 'e', 'ie'];
  t.same(count(change({ a, b, ...rest }, 'a')), { internal: 0, external: 2 });
  t.same(count(change({ a, ...rest }, 'b')), { internal: 0, external: 1 }, 'b is gone');
  t.same(count(change({ a, ...rest })), { internal: 0, external: 1 });
});
