import t, { type Test } from 'tap';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { DATA_PATH_RULES } from '../../src/observe/log-data-path.ts';
import { SINK_RULES } from '../../src/observe/log-sinks.ts';
import { SOURCE_RULES } from '../../src/observe/log-sources.ts';
import { KpngError } from '../../src/errors.ts';
import * as proxier from '../../src/proxier/events.ts';
import * as events from '../../src/proxysocket/events.ts';
import * as store from '../../src/store/events.ts';
import { captureLog, type CapturedLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';

const RULES = [...DATA_PATH_RULES, ...SOURCE_RULES, ...SINK_RULES];
const SERVICE = 'default/web:http';

/** A log that follows events until the test ends. */
async function follow(t: Test, verbosity: number): Promise<CapturedLog & { clock: FakeClock }> {
  const captured = await captureLog(verbosity);
  const clock = new FakeClock();
  t.teardown(subscribeLog(captured.log, RULES, clock));
  return { ...captured, clock };
}

const relay: events.RelayAddresses = {
  servicePort: SERVICE,
  endpoint: '10.1.0.1:8080',
  inRemoteAddress: '127.0.0.1:40000',
  inLocalAddress: '127.0.0.2:80',
  outLocalAddress: '127.0.0.1:40001',
  outRemoteAddress: '10.1.0.1:8080',
};

/** What the data path publishes for one TCP connection. */
function oneConnection(): void {
  events.tcpAccepted.publish({
    servicePort: SERVICE,
    remoteAddress: relay.inRemoteAddress,
    localAddress: relay.inLocalAddress,
  });
  events.endpointPicked.publish({
    servicePort: SERVICE,
    sourceAddress: relay.inRemoteAddress,
    endpoint: relay.endpoint,
    sticky: false,
    endpoints: 2,
    attempt: 1,
  });
  events.relayStarted.publish(relay);
  events.relayEnded.publish({
    ...relay,
    bytesIn: 78,
    bytesOut: 1234,
    durationMs: 1500.4,
    reason: 'closed',
  });
}

t.test('-v=4 logs a connection with the messages and keys of kube-proxy', async (t) => {
  const { lines } = await follow(t, 4);
  oneConnection();
  t.match(lines(), [
    {
      msg: 'Accepted TCP connection from remote',
      v: 3,
      servicePortName: SERVICE,
      remoteAddress: '127.0.0.1:40000',
      localAddress: '127.0.0.2:80',
    },
    {
      msg: 'NextEndpoint for service',
      v: 4,
      servicePortName: SERVICE,
      address: '127.0.0.1:40000',
      endpoints: 2,
    },
    {
      msg: 'Mapped service to endpoint',
      v: 3,
      servicePortName: SERVICE,
      service: SERVICE,
      endpoint: '10.1.0.1:8080',
    },
    {
      msg: 'Creating proxy between remote and local addresses',
      v: 4,
      servicePortName: SERVICE,
      inRemoteAddress: '127.0.0.1:40000',
      inLocalAddress: '127.0.0.2:80',
      outLocalAddress: '127.0.0.1:40001',
      outRemoteAddress: '10.1.0.1:8080',
    },
    {
      msg: 'Copying remote address bytes',
      direction: 'from backend',
      sourceRemoteAddress: '10.1.0.1:8080',
      destinationRemoteAddress: '127.0.0.1:40000',
    },
    {
      msg: 'Copying remote address bytes',
      direction: 'to backend',
      sourceRemoteAddress: '127.0.0.1:40000',
      destinationRemoteAddress: '10.1.0.1:8080',
    },
    {
      msg: 'Copied remote address bytes',
      bytes: 1234,
      direction: 'from backend',
      sourceRemoteAddress: '10.1.0.1:8080',
      destinationRemoteAddress: '127.0.0.1:40000',
    },
    {
      msg: 'Copied remote address bytes',
      bytes: 78,
      direction: 'to backend',
      sourceRemoteAddress: '127.0.0.1:40000',
      destinationRemoteAddress: '10.1.0.1:8080',
    },
    { msg: 'Closed proxy between remote and local addresses', reason: 'closed', seconds: 1.5 },
  ]);
});

t.test('-v=3 logs new connections and their endpoints, and no more', async (t) => {
  const { messages } = await follow(t, 3);
  oneConnection();
  t.same(messages(), ['Accepted TCP connection from remote', 'Mapped service to endpoint']);
});

t.test('without verbosity a connection costs nothing: no channel has a subscriber', async (t) => {
  const { messages } = await follow(t, 0);
  oneConnection();
  t.same(messages(), []);
  const perConnection = [
    events.tcpAccepted,
    events.endpointPicked,
    events.relayStarted,
    events.relayEnded,
    events.udpSessionStarted,
    events.udpSessionEnded,
  ];
  for (const channel of perConnection) t.equal(channel.hasSubscribers, false, channel.name);
});

t.test('UDP sessions', async (t) => {
  const { lines } = await follow(t, 4);
  const session = { servicePort: SERVICE, remoteAddress: '127.0.0.1:5', endpoint: '10.1.0.1:53' };
  events.udpSessionStarted.publish(session);
  const ended = { ...session, datagramsIn: 3, datagramsOut: 2 };
  events.udpSessionEnded.publish({ ...ended, reason: 'idle' });
  events.udpSessionEnded.publish({ ...ended, reason: 'evicted' });
  t.match(lines(), [
    { msg: 'New UDP connection from client', address: '127.0.0.1:5', endpoint: '10.1.0.1:53' },
    { msg: 'connection to endpoint closed due to inactivity', datagramsIn: 3, datagramsOut: 2 },
    { msg: 'UDP session ended', reason: 'evicted' },
  ]);
});

t.test('failures always appear, with their codes', async (t) => {
  const { lines } = await follow(t, 0);
  const error = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  events.connectFailed.publish({
    servicePort: SERVICE,
    endpoint: '10.1.0.1:80',
    attempt: 2,
    cause: 'refused',
    error,
  });
  const client = { servicePort: SERVICE, protocol: 'TCP', remoteAddress: '127.0.0.1:5' } as const;
  events.rejected.publish({ ...client, reason: 'no-endpoint' });
  events.rejected.publish({ ...client, reason: 'drained' });
  events.rejected.publish({ ...client, reason: 'connect-failed' });
  events.rejected.publish({ ...client, reason: 'limit' });
  events.rejected.publish({ ...client, reason: 'source' });
  events.rejected.publish({ ...client, reason: 'hold-timeout' });
  events.limitChanged.publish({ limit: 'max-connections', value: 10, reached: true });
  events.limitChanged.publish({ limit: 'max-connections', value: 10, reached: false });
  t.match(lines(), [
    { level: 'error', msg: 'Dial failed', attempt: 2, reason: 'refused', code: 'ECONNREFUSED' },
    { msg: "Couldn't find an endpoint for service", code: 'KPNG_NO_ENDPOINT' },
    { msg: 'Client refused: endpoints are drained', code: 'KPNG_DRAINED' },
    { msg: 'Failed to connect to balancer', code: 'KPNG_CONNECT_FAILED' },
    { msg: 'Client refused: limit reached', code: 'KPNG_LIMIT_REACHED' },
    { msg: 'Client reset: no endpoint within the hold timeout', code: 'KPNG_NO_ENDPOINT' },
    { level: 'warn', msg: 'Limit reached', limit: 'max-connections', value: 10 },
    { level: 'warn', msg: 'Below the limit again' },
  ]);
});

t.test('the first held client is logged, the end of each hold from -v=3 on', async (t) => {
  const client = { servicePort: SERVICE, remoteAddress: '127.0.0.1:5' };
  const publish = (): void => {
    events.tcpHeld.publish({ ...client, waiting: 1 });
    events.tcpHeld.publish({ ...client, waiting: 2 });
    events.tcpHoldEnded.publish({ ...client, waiting: 1, durationMs: 5, reason: 'endpoint' });
  };
  const quiet = await follow(t, 0);
  publish();
  t.match(quiet.lines(), [
    {
      level: 'info',
      msg: /^Holding client/,
      servicePortName: SERVICE,
      remoteAddress: '127.0.0.1:5',
    },
  ]);
  const chatty = await follow(t, 3);
  publish();
  t.match(chatty.lines(), [
    { msg: /^Holding client/ },
    { msg: 'Client no longer held', waiting: 1, durationMs: 5, reason: 'endpoint' },
  ]);
});

t.test('many failures do not flood the log, and none is lost', async (t) => {
  const { lines, clock } = await follow(t, 0);
  const rejected = { servicePort: SERVICE, protocol: 'TCP', remoteAddress: '127.0.0.1:5' } as const;
  for (let n = 0; n < 1000; n += 1) events.rejected.publish({ ...rejected, reason: 'no-endpoint' });
  t.equal(lines().length, 10);
  clock.advance(2000);
  events.rejected.publish({ ...rejected, reason: 'no-endpoint' });
  t.equal(lines().at(-1)?.['suppressed'], 990);
  for (let n = 0; n < 20; n += 1) events.rejected.publish({ ...rejected, reason: 'no-endpoint' });
  clock.advance(20_000);
  t.match(lines().at(-1), {
    level: 'warn',
    msg: 'Log lines suppressed',
    line: "Couldn't find an endpoint for service",
    suppressed: 19,
  });
});

t.test('a query for every connection gets every failure too', async (t) => {
  const { lines } = await follow(t, 3);
  const rejected = { servicePort: SERVICE, protocol: 'TCP', remoteAddress: '127.0.0.1:5' } as const;
  for (let n = 0; n < 100; n += 1) events.rejected.publish({ ...rejected, reason: 'no-endpoint' });
  t.equal(lines().length, 100);
});

t.test('listeners from -v=2 on', async (t) => {
  const { lines } = await follow(t, 2);
  const opened: events.ListenerOpened = {
    servicePort: SERVICE,
    protocol: 'TCP',
    listen: { address: '::1', port: 80, traffic: 'internal' },
  };
  events.listenerOpened.publish(opened);
  events.listenerFailed.publish({
    ...opened,
    code: 'KPNG_LISTEN_PERMISSION',
    error: new Error('listen EACCES'),
    retryInMs: 1000.7,
  });
  events.listenerClosed.publish(opened);
  t.match(lines(), [
    { msg: 'Proxying for service', servicePortName: SERVICE, protocol: 'TCP', address: '[::1]:80' },
    { level: 'error', code: 'KPNG_LISTEN_PERMISSION', err: 'listen EACCES', retryInMs: 1001 },
    { msg: 'Stopped listening for service' },
  ]);
});

t.test('the source: connected, away, and what it sent', async (t) => {
  const { lines } = await follow(t, 2);
  const source = 'local API at 127.0.0.1:12090';
  store.sourceConnected.publish({ source });
  store.sourceSynced.publish({ source, services: 3, changed: 1 });
  store.opInvalid.publish({ source, error: new KpngError('KPNG_OP_INVALID', 'bad path "x"') });
  store.sourceDisconnected.publish({
    source,
    error: new KpngError('KPNG_SOURCE_LOST', 'connection refused'),
    retryInMs: 1000,
  });
  t.match(lines(), [
    { level: 'info', msg: 'Connected to the source', source },
    { msg: 'Received a complete state', services: 3, changed: 1 },
    { level: 'error', code: 'KPNG_OP_INVALID', err: 'bad path "x"' },
    { level: 'warn', code: 'KPNG_SOURCE_LOST', err: 'connection refused', retryInMs: 1000 },
  ]);
});

t.test('the proxier: services, problems and failures', async (t) => {
  const { lines } = await follow(t, 1);
  const port = { servicePort: SERVICE, protocol: 'TCP' } as const;
  const portal = { protocol: 'TCP', traffic: 'internal', sourceRanges: [] } as const;
  const portals = [
    { ...portal, kind: 'clusterIP', address: '10.0.0.1', port: 80 },
    { ...portal, kind: 'nodePort', address: undefined, port: 30_080 },
  ] as const;
  proxier.servicePortChanged.publish({ kind: 'added', ...port, portals });
  proxier.servicePortChanged.publish({ kind: 'removed', ...port, portals: [] });
  proxier.problemChanged.publish({
    kind: 'appeared',
    problem: {
      code: 'KPNG_LISTEN_PERMISSION',
      message: 'may not listen on port 80',
      servicePort: SERVICE,
      count: 2,
    },
  });
  store.sinkFailed.publish({
    error: new KpngError('KPNG_SINK_FAILED', 'no', { cause: new Error('deep reason') }),
    waiting: 2,
    retryInMs: 500,
  });
  t.match(lines(), [
    {
      msg: 'Adding new service',
      servicePortName: SERVICE,
      addresses: ['clusterIP 10.0.0.1:80', 'nodePort :30080'],
    },
    { msg: 'Stopping service' },
    { level: 'warn', code: 'KPNG_LISTEN_PERMISSION', err: 'may not listen on port 80', count: 2 },
    { level: 'error', code: 'KPNG_SINK_FAILED', cause: 'deep reason', waiting: 2 },
  ]);
});

t.test('the verbosity can be changed while events come', async (t) => {
  const { log, lines } = await follow(t, 0);
  oneConnection();
  t.same(lines(), []);
  t.equal(events.relayStarted.hasSubscribers, false, 'no one subscribes');
  log.setVerbosity(4);
  oneConnection();
  const told = lines().length;
  t.ok(told > 0);
  log.setVerbosity(4);
  log.setVerbosity(0);
  oneConnection();
  t.equal(lines().length, told);
  t.equal(events.relayStarted.hasSubscribers, false);
  log.setVerbosity(4);
  oneConnection();
  t.equal(lines().length, 2 * told, 'raised again');
});
