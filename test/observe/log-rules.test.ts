/** Log lines of events: their messages, keys and levels, and how many of them there are. */
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { KpngError } from '../../src/errors.ts';
import { DATA_PATH_RULES } from '../../src/observe/log-data-path.ts';
import { LogLimiter, subscribeLog } from '../../src/observe/log-rules.ts';
import { SINK_RULES } from '../../src/observe/log-sinks.ts';
import { SOURCE_RULES } from '../../src/observe/log-sources.ts';
import * as portals from '../../src/portal/events.ts';
import * as proxier from '../../src/proxier/events.ts';
import * as events from '../../src/proxysocket/events.ts';
import * as store from '../../src/store/events.ts';
import { captureLog, type CapturedLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { holds } from '../support/property.ts';

const RULES = [...DATA_PATH_RULES, ...SOURCE_RULES, ...SINK_RULES];
const SERVICE = 'default/web:http';
const CLIENT = '127.0.0.1:40000';
const ENDPOINT = '10.1.0.1:8080';

/** A log that follows events until the test ends. */
async function follow(t: Test, verbosity: number): Promise<CapturedLog & { clock: FakeClock }> {
  const captured = await captureLog(verbosity);
  const clock = new FakeClock();
  t.teardown(subscribeLog(captured.log, RULES, clock));
  return { ...captured, clock };
}

const sockets = {
  inRemoteAddress: CLIENT,
  inLocalAddress: '127.0.0.2:80',
  outLocalAddress: '127.0.0.1:40001',
  outRemoteAddress: ENDPOINT,
};
const relay: events.RelayAddresses = { servicePort: SERVICE, endpoint: ENDPOINT, ...sockets };
const client = { servicePort: SERVICE, protocol: 'TCP', remoteAddress: '127.0.0.1:5' } as const;
const rejected = (reason: events.Rejected['reason']): void =>
  events.rejected.publish({ ...client, reason });

/** What the data path publishes for one TCP connection. */
function oneConnection(): void {
  const localAddress = sockets.inLocalAddress;
  events.tcpAccepted.publish({ servicePort: SERVICE, remoteAddress: CLIENT, localAddress });
  const picked = { sticky: false, endpoints: 2, attempt: 1 };
  events.endpointPicked.publish({ ...relay, sourceAddress: CLIENT, ...picked });
  events.relayStarted.publish(relay);
  const ended = { bytesIn: 78, bytesOut: 1234, durationMs: 1500.4, reason: 'closed' } as const;
  events.relayEnded.publish({ ...relay, ...ended });
}

const fromBackend = {
  direction: 'from backend',
  sourceRemoteAddress: ENDPOINT,
  destinationRemoteAddress: CLIENT,
};
const toBackend = {
  direction: 'to backend',
  sourceRemoteAddress: CLIENT,
  destinationRemoteAddress: ENDPOINT,
};

function udpSessions(): void {
  const session = { servicePort: SERVICE, remoteAddress: '127.0.0.1:5', endpoint: '10.1.0.1:53' };
  events.udpSessionStarted.publish(session);
  for (const reason of ['idle', 'evicted'] as const) {
    events.udpSessionEnded.publish({ ...session, datagramsIn: 3, datagramsOut: 2, reason });
  }
}

function failures(): void {
  const error = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  events.connectFailed.publish({ ...relay, attempt: 2, cause: 'refused', error });
  for (const reason of [
    'no-endpoint',
    'drained',
    'connect-failed',
    'limit',
    'source',
    'hold-timeout',
  ] as const) {
    rejected(reason);
  }
  for (const reached of [true, false]) {
    events.limitChanged.publish({ limit: 'max-connections', value: 10, reached });
  }
}

function heldClients(): void {
  for (const waiting of [1, 2]) events.tcpHeld.publish({ ...client, waiting });
  events.tcpHoldEnded.publish({ ...client, waiting: 1, durationMs: 5, reason: 'endpoint' });
}

function listeners(): void {
  const opened: events.ListenerOpened = {
    servicePort: SERVICE,
    protocol: 'TCP',
    listen: { address: '::1', port: 80, traffic: 'internal' },
  };
  events.listenerOpened.publish(opened);
  const failed = { code: 'KPNG_LISTEN_PERMISSION', error: new Error('listen EACCES') };
  events.listenerFailed.publish({ ...opened, ...failed, retryInMs: 1000.7 });
  events.listenerClosed.publish(opened);
}

const source = 'local API at 127.0.0.1:12090';

function sourceEvents(): void {
  store.sourceConnected.publish({ source });
  store.sourceSynced.publish({ source, services: 3, changed: 1 });
  store.opInvalid.publish({ source, error: new KpngError('KPNG_OP_INVALID', 'bad path "x"') });
  const error = new KpngError('KPNG_SOURCE_LOST', 'connection refused');
  store.sourceDisconnected.publish({ source, error, retryInMs: 1000 });
}

function proxierEvents(): void {
  const port = { servicePort: SERVICE, protocol: 'TCP' } as const;
  const portal = { protocol: 'TCP', traffic: 'internal', sourceRanges: [] } as const;
  const specs = [
    { ...portal, kind: 'clusterIP', address: '10.0.0.1', port: 80 },
    { ...portal, kind: 'nodePort', address: undefined, port: 30_080 },
  ] as const;
  proxier.servicePortChanged.publish({ kind: 'added', ...port, portals: specs });
  proxier.servicePortChanged.publish({ kind: 'removed', ...port, portals: [] });
  const code = 'KPNG_LISTEN_PERMISSION';
  const problem = { code, message: 'may not listen', servicePort: SERVICE, count: 2 } as const;
  for (const kind of ['appeared', 'gone'] as const) {
    proxier.problemChanged.publish({ kind, problem });
  }
  const cause = new Error('deep reason');
  const error = new KpngError('KPNG_SINK_FAILED', 'no', { cause });
  store.sinkFailed.publish({ error, waiting: 2, retryInMs: 500 });
}

/** What a portal publishes; a change, which is not worth a line, is the second event. */
function portalEvents(portal: 'nftables' | 'address') {
  const written = { portal, added: 12, removed: 0, durationMs: 50.04 };
  portals.portalWritten.publish({ ...written, reason: 'start' });
  portals.portalWritten.publish({ ...written, reason: 'change' });
  portals.portalLost.publish({ portal, message: 'they are gone' });
  const error = new KpngError('KPNG_PORTAL_PERMISSION', 'why', { servicePort: 'a/b:c' });
  portals.portalFailed.publish({ portal, error });
  portals.portalWritten.publish({ ...written, reason: 'repair' });
  const flows = new KpngError('KPNG_PORTAL_TOOL_MISSING', 'no conntrack');
  portals.flowsNotCleared.publish({ portal, error: flows });
  portals.portalShared.publish({ portal, error: new KpngError('KPNG_PORTAL_SHARED', 'by 4711') });
  portals.portalShared.publish({ portal, error: undefined });
}

/** Events, the verbosity, and the lines that come of them. */
const CASES: Readonly<Record<string, readonly [() => void, number, readonly object[]]>> = {
  'a connection at -v=4, as in kube-proxy': [
    oneConnection,
    4,
    [
      {
        msg: 'Accepted TCP connection from remote',
        v: 3,
        servicePortName: SERVICE,
        remoteAddress: CLIENT,
        localAddress: '127.0.0.2:80',
      },
      {
        msg: 'NextEndpoint for service',
        v: 4,
        servicePortName: SERVICE,
        address: CLIENT,
        endpoints: 2,
      },
      {
        msg: 'Mapped service to endpoint',
        v: 3,
        servicePortName: SERVICE,
        service: SERVICE,
        endpoint: ENDPOINT,
      },
      {
        msg: 'Creating proxy between remote and local addresses',
        v: 4,
        servicePortName: SERVICE,
        ...sockets,
      },
      { msg: 'Copying remote address bytes', ...fromBackend },
      { msg: 'Copying remote address bytes', ...toBackend },
      { msg: 'Copied remote address bytes', bytes: 1234, ...fromBackend },
      { msg: 'Copied remote address bytes', bytes: 78, ...toBackend },
      { msg: 'Closed proxy between remote and local addresses', reason: 'closed', seconds: 1.5 },
    ],
  ],
  'a connection at -v=3: that it came, and its endpoint': [
    oneConnection,
    3,
    [{ msg: 'Accepted TCP connection from remote' }, { msg: 'Mapped service to endpoint' }],
  ],
  'UDP sessions': [
    udpSessions,
    4,
    [
      { msg: 'New UDP connection from client', address: '127.0.0.1:5', endpoint: '10.1.0.1:53' },
      { msg: 'connection to endpoint closed due to inactivity', datagramsIn: 3, datagramsOut: 2 },
      { msg: 'UDP session ended', reason: 'evicted' },
    ],
  ],
  'failures always, with their codes': [
    failures,
    0,
    [
      { level: 'error', msg: 'Dial failed', attempt: 2, reason: 'refused', code: 'ECONNREFUSED' },
      { msg: "Couldn't find an endpoint for service", code: 'KPNG_NO_ENDPOINT' },
      { msg: 'Client refused: endpoints are drained', code: 'KPNG_DRAINED' },
      { msg: 'Failed to connect to balancer', code: 'KPNG_CONNECT_FAILED' },
      { msg: 'Client refused: limit reached', code: 'KPNG_LIMIT_REACHED' },
      { msg: 'Client reset: no endpoint within the hold timeout', code: 'KPNG_NO_ENDPOINT' },
      { level: 'warn', msg: 'Limit reached', limit: 'max-connections', value: 10 },
      { level: 'warn', msg: 'Below the limit again' },
    ],
  ],
  'the first held client': [
    heldClients,
    0,
    [{ level: 'info', msg: /^Holding client/, servicePortName: SERVICE, remoteAddress: /:5$/ }],
  ],
  'the end of each hold from -v=3 on': [
    heldClients,
    3,
    [
      { msg: /^Holding client/ },
      { msg: 'Client no longer held', waiting: 1, durationMs: 5, reason: 'endpoint' },
    ],
  ],
  'listeners from -v=2 on': [
    listeners,
    2,
    [
      {
        msg: 'Proxying for service',
        servicePortName: SERVICE,
        protocol: 'TCP',
        address: '[::1]:80',
      },
      { level: 'error', code: 'KPNG_LISTEN_PERMISSION', err: 'listen EACCES', retryInMs: 1001 },
      { msg: 'Stopped listening for service' },
    ],
  ],
  'the source: connected, away, and what it sent': [
    sourceEvents,
    2,
    [
      { level: 'info', msg: 'Connected to the source', source },
      { msg: 'Received a complete state', services: 3, changed: 1 },
      { level: 'error', code: 'KPNG_OP_INVALID', err: 'bad path "x"' },
      { level: 'warn', code: 'KPNG_SOURCE_LOST', err: 'connection refused', retryInMs: 1000 },
    ],
  ],
  'the proxier: services, problems and failures': [
    proxierEvents,
    1,
    [
      {
        msg: 'Adding new service',
        servicePortName: SERVICE,
        addresses: ['clusterIP 10.0.0.1:80', 'nodePort :30080'],
      },
      { msg: 'Stopping service' },
      { level: 'warn', code: 'KPNG_LISTEN_PERMISSION', err: 'may not listen', count: 2 },
      { level: 'info', was: 'may not listen', servicePortName: SERVICE },
      { level: 'error', code: 'KPNG_SINK_FAILED', cause: 'deep reason', waiting: 2 },
    ],
  ],
  'packet rules': [
    () => portalEvents('nftables'),
    0,
    [
      { level: 'info', msg: 'Packet rules written', portal: 'nftables', added: 12, ms: 50 },
      { level: 'warn', msg: /^Packet rules were removed/, reason: 'they are gone' },
      { level: 'error', msg: /^Writing packet rules failed/, servicePortName: 'a/b:c', err: 'why' },
      { level: 'info', msg: 'Packet rules repaired' },
      { level: 'warn', msg: /^Removing stale UDP conntrack/, code: 'KPNG_PORTAL_TOOL_MISSING' },
      { level: 'warn', msg: 'Another process redirects the same traffic', err: /4711/ },
      { level: 'info', msg: 'No other process redirects the same traffic any more' },
    ],
  ],
  'addresses on an interface': [
    () => portalEvents('address'),
    2,
    [
      { msg: 'Service addresses added to the interface' },
      { msg: 'Service addresses on the interface changed', v: 2 },
      { msg: /^Service addresses were removed from the interface/ },
      { msg: /^Changing service addresses on the interface failed/ },
      { msg: 'Service addresses on the interface repaired' },
      {},
      {},
      {},
    ],
  ],
};

for (const [name, [publish, verbosity, expected]] of Object.entries(CASES)) {
  t.test(name, async (t) => {
    const { lines } = await follow(t, verbosity);
    publish();
    t.match(lines(), expected);
    t.equal(lines().length, expected.length);
  });
}

t.test('the verbosity can change; without it, no channel has a subscriber', async (t) => {
  const { log, lines } = await follow(t, 0);
  const perConnection = [
    events.tcpAccepted,
    events.endpointPicked,
    events.relayStarted,
    events.relayEnded,
    events.udpSessionStarted,
    events.udpSessionEnded,
  ];
  const isQuiet = (): void => {
    for (const channel of perConnection) t.equal(channel.hasSubscribers, false, channel.name);
  };
  isQuiet();
  log.setVerbosity(4);
  oneConnection();
  t.equal(lines().length, 9);
  log.setVerbosity(4);
  log.setVerbosity(0);
  isQuiet();
  log.setVerbosity(4);
  oneConnection();
  t.equal(lines().length, 18, 'raised again');
});

t.test('many failures do not flood the log, and none is lost', async (t) => {
  const { lines, clock } = await follow(t, 0);
  for (let n = 0; n < 1000; n += 1) rejected('no-endpoint');
  t.equal(lines().length, 10);
  clock.advance(2000);
  rejected('no-endpoint');
  t.equal(lines().at(-1)?.['suppressed'], 990);
  for (let n = 0; n < 20; n += 1) rejected('no-endpoint');
  clock.advance(20_000);
  t.match(lines().at(-1), {
    level: 'warn',
    msg: 'Log lines suppressed',
    line: "Couldn't find an endpoint for service",
    suppressed: 19,
  });
  const chatty = await follow(t, 3);
  for (let n = 0; n < 100; n += 1) rejected('no-endpoint');
  t.equal(chatty.lines().length, 100, 'all of them from -v=3 on');
});

t.test('every line is either written or counted exactly once', async (t) => {
  const steps = fc.array(fc.integer({ min: 0, max: 2500 }), { maxLength: 60 });
  holds(
    t,
    fc.property(steps, (waits) => {
      const clock = new FakeClock();
      let counted = 0;
      const limiter = new LogLimiter(clock, (_, suppressed) => (counted += suppressed));
      for (const wait of [...Array.from({ length: 10 }, () => 0), ...waits]) {
        clock.advance(wait);
        const before = limiter.take('x');
        if (before !== undefined) counted += 1 + before;
      }
      limiter.close();
      return counted === 10 + waits.length;
    }),
  );
});
