import { once } from 'node:events';
import { connect } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { status } from '@grpc/grpc-js';
import t, { type Test } from 'tap';
import { KpngClient } from '../../src/client/client.ts';
import { parseTarget } from '../../src/client/target.ts';
import { watchEnded, watchStarted } from '../../src/server/events.ts';
import type { ApiServer } from '../../src/server/server.ts';
import { framed, openStreams, opText, portOf, startApiRig } from '../support/api-rig.ts';
import { draining, pod } from '../support/cluster.ts';
import { RecordingSink } from '../support/recording-sink.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

t.test('a client that half-closes gets its responses, and then the end', async (t) => {
  const { cluster, watch, server } = await startApiRig(t);
  const call = watch();
  call.request('n');
  call.stream.end();
  t.equal(opText(await call.next()), 'R');
  cluster.service('demo/a').complete();
  t.strictSame(await call.texts(), ['S1 demo/a', 'Y']);
  t.equal((await call.status).code, status.OK);
  const idle = watch();
  idle.stream.end();
  t.equal((await idle.status).code, status.OK);
  await until(() => server.watchers === 0);
});

t.test('a client that has gone is forgotten at once, though nothing changes', async (t) => {
  const ended = collect(t, watchEnded);
  const started = collect(t, watchStarted);
  const { cluster, watch, server } = await startApiRig(t);
  cluster.service('demo/a').complete();
  const call = watch();
  await call.ask('gone');
  call.request('gone');
  t.equal(server.watchers, 1);
  call.stream.cancel();
  await until(() => server.watchers === 0);
  t.match(started, [{ api: 'local', watchers: 1, peer: /^127\.0\.0\.1:\d+$/ }]);
  t.match(
    ended.filter(({ nodeName }) => nodeName === 'gone'),
    [{ api: 'local', nodeName: 'gone', syncs: 1, watchers: 0, error: undefined }],
  );
  cluster.service('demo/a', { type: 'NodePort' });
  t.equal(cluster.store.history.kept, 0, 'nothing is kept for it');
});

t.test('unservable requests are refused with a status and reason', async (t) => {
  const { watch, watchGlobal } = await startApiRig(t, { limits: { maxMessageSize: 1024 } });
  const [damaged, ignored] = [watch(), watchGlobal()];
  for (const call of [damaged, ignored]) call.sendBytes(Buffer.from('0aff', 'hex'));
  t.equal(opText(await ignored.next()), 'R', 'requests of the global API have no content');
  const refused = await damaged.status;
  t.equal(refused.code, status.INVALID_ARGUMENT);
  t.match(refused.details, /A request cannot be decoded/);
  const large = watch();
  large.request('n'.repeat(2000));
  t.equal((await large.status).code, status.RESOURCE_EXHAUSTED);
  const local = (await startApiRig(t, { apis: ['global'] })).watch();
  local.request('n');
  t.equal((await local.status).code, status.UNIMPLEMENTED, 'an API that is switched off');
});

t.test('a client that does not read delays no other; later it gets the present', async (t) => {
  const { cluster, watch } = await startApiRig(t);
  const count = 4000;
  const round = (ip: number): void => {
    cluster.atOnce((all) => {
      for (let i = 0; i < count; i++) {
        all.service(`demo/s${i}`, { annotations: { filler: 'x'.repeat(300), round: `${ip}` } });
      }
    });
  };
  round(0);
  cluster.complete();
  const slow = watch();
  slow.stream.pause();
  slow.request('n');
  const quick = watch();
  quick.request('n');
  t.equal((await quick.changeSet()).length, count + 2);
  for (let ip = 1; ip <= 5; ip++) {
    quick.request('n');
    round(ip);
    t.equal((await quick.changeSet()).length, count + 1);
  }
  slow.stream.resume();
  t.equal((await slow.changeSet()).length, count + 2, 'the state of when it asked');
  slow.request('n');
  t.equal((await slow.changeSet()).length, count + 1, 'and at once that of now');
  t.equal(cluster.store.history.kept, 0);
});

t.test('a client that lags too far behind is cut off, and can begin again', async (t) => {
  const ended = collect(t, watchEnded);
  const { cluster, watch } = await startApiRig(t, { limits: { maxHistory: 10 } });
  for (let i = 0; i < 20; i++) cluster.service(`demo/s${i}`);
  cluster.complete();
  const [call, other] = [watch(), watch()];
  await Promise.all([call.ask('n'), other.ask('n')]);
  for (let i = 0; i < 20; i++) {
    cluster.service(`demo/s${i}`, { type: 'NodePort' });
    t.strictSame(await other.ask('n'), [`S1 demo/s${i}`, 'Y'], 'one that keeps up stays');
  }
  const end = await call.status;
  t.equal(end.code, status.ABORTED);
  t.match(end.details, /lags too far behind/);
  const cutOff = ended.filter(({ error }) => error !== undefined);
  t.match(cutOff, [{ error: { code: 'KPNG_LIMIT_REACHED' } }]);
  const again = watch();
  again.request('n');
  t.equal((await again.changeSet()).length, 22);
});

t.test('closing ends the calls gracefully', async (t) => {
  const { cluster, watch, server } = await startApiRig(t);
  cluster.complete();
  const [waiting, idle] = [watch(), watch()];
  waiting.request('n');
  idle.request('n');
  await Promise.all([waiting.texts(), idle.texts()]);
  waiting.request('n');
  await server.close();
  // The clients have been notified by now.
  server.destroy();
  for (const call of [waiting, idle]) {
    const { code, details } = await call.status;
    t.equal(code, status.UNAVAILABLE);
    t.match(details, /stopping/);
  }
  t.equal(server.watchers, 0);
  await server.close();
  const late = watch();
  late.request('n');
  t.equal((await late.status).code, status.UNAVAILABLE);
});

const BOTH_LOCAL = { externalTrafficToLocal: true, internalTrafficToLocal: true };

t.test('whether an endpoint is ready, and which one clients in the cluster may use', async (t) => {
  const { cluster, server } = await startApiRig(t);
  cluster.service('demo/web', BOTH_LOCAL).endpoints('demo/web', pod('far', '10.0.0.2', 'n2'));
  cluster.complete();
  const target = parseTarget(`127.0.0.1:${portOf(server)}`);
  const sinkOf = (clusterScope: boolean): RecordingSink => {
    const stop = new AbortController();
    const sink = new RecordingSink();
    const running = new KpngClient({ target, nodeName: 'n1', clusterScope }).run(sink, stop.signal);
    t.teardown(async () => {
      stop.abort();
      await running;
    });
    return sink;
  };
  const [proxy, other] = [sinkOf(true), sinkOf(false)];
  t.same((await other.next()).shape, ['demo/web()'], 'only for those that ask for it');
  const first = await proxy.next();
  const endpointsIn = ({ view }: typeof first) => view.get('demo/web')?.endpoints;
  const scopes = { internal: false, external: false, cluster: true };
  t.match(endpointsIn(first)?.get('far'), { scopes, local: false, terminating: undefined });

  cluster.endpoints('demo/web', draining(pod('near', '10.0.0.1', 'n1')));
  for (const sink of [proxy, other]) {
    const near = endpointsIn(await sink.next())?.get('near');
    t.match(near, { local: true, terminating: true, scopes: { external: true } });
  }
});

/** A field of a message that is a text. */
function text(field: number, value: string): Buffer {
  return Buffer.concat([Buffer.from([(field << 3) | 2, value.length]), Buffer.from(value)]);
}

/** Makes calls with one request; they result in a message, or in the status if there is none. */
function caller(t: Test, server: ApiServer, path: string) {
  const { open } = openStreams(t, connect(portOf(server), '127.0.0.1'));
  return async (request: Buffer): Promise<string> => {
    const call = open(path);
    call.end(framed(request));
    const [headers] = (await once(call, 'response')) as [Record<string, string>];
    const message = (await buffer(call)).subarray(5);
    return message.length === 0 ? `status ${headers['grpc-status']}` : message.toString('latin1');
  };
}

t.test('health: serving once the state is complete', async (t) => {
  const { cluster, server } = await startApiRig(t, { apis: ['local'] });
  const call = caller(t, server, '/grpc.health.v1.Health/Check');
  const check = async (service: string): Promise<string | undefined> => {
    const answer = await call(service === '' ? Buffer.alloc(0) : text(1, service));
    return { '\b\u0001': 'SERVING', '\b\u0002': 'NOT_SERVING' }[answer] ?? answer;
  };
  t.equal(await check(''), 'NOT_SERVING');
  t.equal(await check('localv1.Sets'), 'NOT_SERVING');
  cluster.complete();
  t.equal(await check(''), 'SERVING');
  t.equal(await check('localv1.Sets'), 'SERVING');
  t.equal(await check('globalv1.Sets'), 'status 5', 'not found');
});

t.test('reflection: the services and their messages can be asked for', async (t) => {
  const { server } = await startApiRig(t);
  const ask = caller(t, server, '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo');
  const services = (await ask(text(7, ''))).match(/[\w.]+\.(?:Sets|Health)/g);
  t.strictSame(services?.sort(), ['globalv1.Sets', 'grpc.health.v1.Health', 'localv1.Sets']);
  const health = await ask(text(4, 'grpc.health.v1.HealthCheckRequest'));
  t.match(health, 'HealthCheckResponse');
  t.notMatch(health, 'NodeInfo');
  const files = await ask(text(4, 'globalv1.EndpointInfo'));
  t.match(files, 'NodeInfo', 'the whole file');
  t.match(files, 'IPFilter', 'and the one that it imports');
});
