/** The services that come with gRPC servers. */
import {
  credentials,
  loadPackageDefinition,
  type Client,
  type ServiceError,
  type ServiceDefinition,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { protoPath } from 'grpc-health-check';
import { dirname, join } from 'node:path';
import { createRequire } from 'node:module';
import t, { type Test } from 'tap';
import type { ApiServer } from '../../src/server/server.ts';
import { portOf, startApiRig } from '../support/api-rig.ts';

type Unary = (
  request: object,
  callback: (error: ServiceError | null, reply: unknown) => void,
) => void;

function clientOf(t: Test, server: ApiServer, definition: unknown): Client & Record<string, Unary> {
  const Made = loadPackageDefinition({ Service: definition as ServiceDefinition })
    .Service as unknown as new (...args: unknown[]) => Client & Record<string, Unary>;
  const client = new Made(`127.0.0.1:${portOf(server)}`, credentials.createInsecure());
  t.teardown(() => client.close());
  return client;
}

t.test('health: serving once the state is complete', async (t) => {
  const { cluster, server } = await startApiRig(t, { apis: ['local'] });
  const client = clientOf(
    t,
    server,
    loadSync(protoPath, { enums: String })['grpc.health.v1.Health'],
  );
  const check = (service: string): Promise<unknown> =>
    new Promise((resolve) => {
      client['check']?.({ service }, (error, reply) => resolve(error?.code ?? reply));
    });
  t.strictSame(await check(''), { status: 'NOT_SERVING' });
  t.strictSame(await check('localv1.Sets'), { status: 'NOT_SERVING' });
  cluster.complete();
  t.strictSame(await check(''), { status: 'SERVING' });
  t.strictSame(await check('localv1.Sets'), { status: 'SERVING' });
  t.equal(await check('globalv1.Sets'), 5, 'not found');
});

t.test('reflection: the services and their messages can be asked for', async (t) => {
  const { server } = await startApiRig(t);
  const folder = dirname(createRequire(import.meta.url).resolve('@grpc/reflection'));
  const proto = join(folder, '..', 'proto', 'grpc', 'reflection', 'v1', 'reflection.proto');
  const definition = loadSync(proto, { defaults: true, oneofs: true });
  const client = clientOf(t, server, definition['grpc.reflection.v1.ServerReflection']);
  const call = (client as unknown as Record<string, () => Stream>)['serverReflectionInfo']?.();
  if (call === undefined) throw new Error('no such method');
  const ask = (request: object): Promise<Reply> =>
    new Promise((resolve) => {
      call.once('data', resolve);
      call.write(request);
    });
  const { listServicesResponse } = await ask({ listServices: '' });
  t.strictSame(listServicesResponse?.service.map(({ name }) => name).sort(), [
    'globalv1.Sets',
    'grpc.health.v1.Health',
    'localv1.Sets',
  ]);
  const health = await ask({ fileContainingSymbol: 'grpc.health.v1.HealthCheckRequest' });
  t.equal(health.fileDescriptorResponse?.fileDescriptorProto.length, 1);
  const { fileDescriptorResponse } = await ask({ fileContainingSymbol: 'globalv1.EndpointInfo' });
  const files = fileDescriptorResponse?.fileDescriptorProto ?? [];
  t.equal(files.length, 2, 'the file and the one that it imports');
  t.ok(files.some((file) => file.includes('EndpointInfo')));
  call.on('error', () => {});
  call.cancel();
});

interface Stream {
  once(event: 'data', listener: (reply: Reply) => void): void;
  on(event: 'error', listener: () => void): void;
  write(request: object): void;
  cancel(): void;
}

interface Reply {
  readonly listServicesResponse?: { readonly service: readonly { readonly name: string }[] };
  readonly fileDescriptorResponse?: { readonly fileDescriptorProto: readonly Buffer[] };
}
