import { defaultsOf } from '../support/command-lines.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { tableRows } from '../support/markdown.ts';
import { endpoint, entry, TestView } from '../support/messages.ts';
import { shortDir } from '../support/short-dir.ts';
import { tcpClient } from '../support/tcp-peers.ts';
import { until } from '../support/until.ts';
import { EventEmitter, once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import t from 'tap';
import type { Test } from 'tap';
import type { ProxySubject } from '../../src/admin/subject.ts';
import type { BoundSink, BoundSource, RunningSink, SinkOptions } from '../../src/cli/command.ts';
import { GLOBAL_FLAGS, type GlobalOptions } from '../../src/cli/flags/global.ts';
import { readFlags } from '../../src/cli/flags/read.ts';
import { drain, meaningOfHangUp, setOomScore, watchProcess } from '../../src/cli/lifecycle.ts';
import type { HangUp, remainingOf, StopReason } from '../../src/cli/lifecycle.ts';
import { localPolicyCounter, run } from '../../src/cli/run.ts';
import { KpngError } from '../../src/errors.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import type { LocalChange, LocalSink } from '../../src/store/local-view.ts';

/** What happens around a source and a sink while they run, with both made up. */

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
  readonly sinkOptions?: SinkOptions;
  readonly globals?: Partial<GlobalOptions>;
  /** The flags on the command line. */
  readonly flags?: readonly string[];
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
    options: { nodeName: 'n1', ...options.sinkOptions },
    scope: 'local',
    start: async () => options.startSink?.() ?? running,
  };
  const { flags = ['healthz-bind-address', 'admin-socket'] } = options;
  const healthzBindAddress = { host: '127.0.0.1', port: 0 };
  const defaults = defaultsOf(GLOBAL_FLAGS);
  const globals = { ...defaults, healthzBindAddress, adminSocket: '' };
  const ended = run({
    source,
    sink,
    globals: { ...globals, ...options.globals },
    log: captured.log,
    process,
    stdout: new PassThrough(),
    hangUp: meaningOfHangUp('win32', false),
    command: [],
    settings: readFlags(
      flags.map((name) => ({ name, written: '', text: '' })),
      GLOBAL_FLAGS,
    ).settings,
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

t.test('metrics and health are served by default where connections are carried', async (t) => {
  const globals = { metricsBindAddress: { host: '127.0.0.1', port: 0 } };
  const limits = DEFAULT_LIMITS;
  const carries = await setup(t, { globals, flags: [], sinkOptions: { limits } });
  await Promise.all([carries.told('Serving metrics'), carries.url()]);
  for (const sinkOptions of [{}, { limits, dryRun: true }]) {
    const other = await setup(t, { globals, flags: [], sinkOptions });
    await other.told('The first complete state is in place');
    other.process.emit('SIGTERM', 'SIGTERM');
    await other.ended;
    t.notMatch(other.messages().join(), 'Serving');
  }
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
  const all = ['TCP', 'UDP', 'TCP'].map((protocol) => ({ protocol, counters }));
  const proxy = { engine: { snapshot: () => all } } as unknown as ProxySubject;
  const globals = { drainDelay: 3_600_000, drainTimeout: 3_600_000 };
  const { process, lines, told, ended } = await setup(t, { sink: { proxy }, globals });
  await told('The first complete state is in place');
  process.emit('SIGHUP', 'SIGHUP');
  t.equal(await ended, 0);
  const left = { msg: 'Waiting for connections to end', connections: 4, sessions: 2, cutIn: '4s' };
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
    sink: { ended: handedOver.promise },
    globals: { adminSocket: join(shortDir(t), 'run', 'admin') },
  });
  const { port } = new URL(await url());
  const client = await tcpClient(t, Number(port));
  await told('The first complete state is in place');
  handedOver.resolve(1);
  await told('Stopped');
  client.setEncoding('utf8').write('GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n');
  t.match(await once(client, 'data'), ['HTTP/1.1 200 OK']);
  await told('Serving the admin API beside the new process');
  t.equal(await ended, 0);
});

t.test('services whose policy leaves no endpoint are counted as they change', async (t) => {
  const [internal, external] = [{ internalTrafficToLocal: true }, { externalTrafficToLocal: true }];
  const only = (scopes: object) => ({ e: endpoint('10.0.0.1', { scopes }) });
  const view = new TestView();
  const count = localPolicyCounter();
  const first = view.set(
    entry('d/a', internal, only({ external: true })),
    entry('d/b', external),
    entry('d/c', {}),
    entry('d/d', { ...internal, ...external }, only({ internal: true })),
  );
  t.same(count(first), { internal: 1, external: 2 });
  const usable = {
    ...only({ external: true }),
    f: endpoint('10.0.0.2', { scopes: { internal: true } }),
  };
  t.same(count(view.set(entry('d/a', internal, usable))), { internal: 0, external: 2 });
  t.same(count(view.remove('d/b')), { internal: 0, external: 1 });
  t.same(count(view.again()), { internal: 0, external: 1 });
});

async function watched(hangUp?: HangUp) {
  const process = Object.assign(new EventEmitter(), {
    exits: [] as number[],
    exit(code: number) {
      this.exits.push(code);
    },
  });
  const stops: StopReason[] = [];
  const { log, lines } = await captureLog();
  watchProcess(process, log, hangUp, (reason) => stops.push(reason));
  return { process, stops, lines };
}

t.test(
  'the first signal stops gracefully, the second at once; HUP where it means so',
  async (t) => {
    // Windows waits for five seconds.
    const withinMs = 4000;
    for (const [signal, hangUp, reason] of [
      ...['SIGINT', 'SIGTERM', 'SIGQUIT', 'SIGBREAK'].map((each) => [each, undefined, {}] as const),
      ['SIGHUP', meaningOfHangUp('win32', false), { withinMs }],
      ['SIGHUP', meaningOfHangUp('win32', true), { withinMs }],
      ['SIGHUP', meaningOfHangUp('linux', true), {}],
    ] as const) {
      const { process, stops, lines } = await watched(hangUp);
      process.emit(signal, signal);
      t.same([stops, process.exits], [[{ logFields: { signal }, ...reason }], []], signal);
      process.emit('SIGINT', 'SIGINT');
      t.same([stops.length, process.exits], [1, [1]]);
      t.match(lines(), [{ level: 'warn', msg: /exiting at once/, signal: 'SIGINT' }]);
    }
    const { process, stops, lines } = await watched(meaningOfHangUp('linux', false));
    process.emit('SIGHUP', 'SIGHUP');
    t.same([stops, process.exits], [[], []]);
    t.match(lines(), [{ level: 'info', msg: /SIGHUP ignored/ }]);
  },
);

t.test('docs/reference/command-line.md has every signal', async (t) => {
  const { process } = await watched();
  const page = join(import.meta.dirname, '../../docs/reference/command-line.md');
  const documented = tableRows(readFileSync(page, 'utf8'), 'Signals').map(([name]) => name);
  const handled = process
    .eventNames()
    .map(String)
    .filter((name) => name.startsWith('SIG'));
  t.ok(handled.length >= 5);
  for (const name of [...handled, 'SIGUSR1', 'SIGPIPE', 'SIGKILL', 'SIGUSR2']) {
    t.match(documented.join(), new RegExp(`\\b${name.slice(3)}\\b`));
  }
});

t.test('an uncaught error is logged with its stack and ends the program with code 1', async (t) => {
  const error = Object.assign(new Error('a mistake'), { code: 'KPNG_X' });
  for (const [event, thrown, line] of [
    ['uncaughtException', error, { err: 'a mistake', code: 'KPNG_X', stack: /run\.test/ }],
    ['unhandledRejection', 'just text', { err: 'just text' }],
  ] as const) {
    const { process, lines } = await watched();
    process.emit(event, thrown);
    t.same(process.exits, [1], event);
    t.match(lines(), [{ level: 'error', ...line }]);
  }
});

async function draining(timeoutMs: number, remaining?: () => ReturnType<typeof remainingOf>) {
  const clock = new FakeClock();
  const { log, lines } = await captureLog();
  const work = Promise.withResolvers<void>();
  const outcome = drain(work.promise, timeoutMs, remaining, log, clock);
  return { clock, lines, work, outcome };
}

t.test('a drain is reported at its start, repeatedly, and at its limit', async (t) => {
  let connections = 3;
  const { clock, lines, outcome } = await draining(10_000, () => {
    connections -= 1;
    return { connections: Math.max(0, connections), sessions: 0 };
  });
  for (let second = 0; second < 10; second += 1) clock.advance(1000);
  await outcome;
  t.match(lines(), [
    { msg: 'Waiting for connections to end', connections: 2, sessions: 0, cutIn: '10s' },
    { connections: 1, cutIn: '8s' },
    { level: 'warn', msg: /^Drain timeout reached/, drainTimeout: '10s', connections: 0 },
  ]);
  t.equal(lines().length, 3, 'no line when nothing is left');
  // Twice a minute at least, once a second at most.
  for (const [timeoutMs, passed, reports] of [
    [3_600_000, 30_000, 2],
    [1500, 999, 1],
  ] as const) {
    const each = await draining(timeoutMs, () => ({ connections: 1, sessions: 0 }));
    each.clock.advance(passed);
    t.equal(each.lines().length, reports);
    each.work.resolve();
    await each.outcome;
    t.equal(each.clock.pending, 0, 'nothing is reported after the end');
  }
  const failing = await draining(1000);
  failing.work.reject(new Error('no'));
  await t.rejects(failing.outcome, { message: 'no' });
  t.equal(failing.clock.pending, 0);
});

const onlyLinux = { skip: process.platform !== 'linux' && 'only on linux' };

t.test('the OOM score is that of the flag, or a warning', onlyLinux, async (t) => {
  const { log, lines } = await captureLog();
  const score = (): number => Number(readFileSync('/proc/self/oom_score_adj', 'utf8'));
  const before = score();
  await setOomScore(undefined, log);
  t.equal(score(), before);
  // Raising it needs no privilege; it stays so for this test's process only.
  const higher = Math.min(before + 1, 1000);
  await setOomScore(higher, log);
  t.equal(score(), higher);
  t.same(lines(), []);
  await setOomScore(1001, log);
  t.match(lines(), [{ level: 'warn', oomScoreAdj: 1001, code: 'EINVAL' }]);
});
