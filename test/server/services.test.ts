/** The services that come with gRPC servers, by the bytes of their messages. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { buffer } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import type { ApiServer } from '../../src/server/server.ts';
import { framed, openStreams, portOf, startApiRig } from '../support/api-rig.ts';

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
