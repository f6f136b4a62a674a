import { Client, credentials, Server, ServerCredentials } from '@grpc/grpc-js';
import { EventEmitter } from 'node:events';
import t, { type Test } from 'tap';
import { deleteFrame, RESET_FRAME, SYNC_FRAME } from '../../src/api/frames.ts';
import { frameWriter, messageWriter } from '../../src/server/frame-writer.ts';
import type { BytesCall } from '../../src/server/http2-stream.ts';
import { serviceDefinition } from '../../src/server/methods.ts';
import { WatchCall } from '../support/api-rig.ts';

const FRAMES = [RESET_FRAME, deleteFrame(1, 'demo/web'), SYNC_FRAME];
const DELETE = deleteFrame(1, 'demo/web').subarray(5);

/** A server whose handler is given each call, and a call of it. */
async function call(t: Test, handler: (call: BytesCall) => void): Promise<WatchCall> {
  const server = new Server();
  server.addService(serviceDefinition('local'), { watch: handler });
  const port = await new Promise<number>((resolve, reject) => {
    const address = '127.0.0.1:0';
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  t.teardown(() => {
    client.close();
    server.forceShutdown();
  });
  const asIs = (bytes: Buffer): Buffer => bytes;
  return new WatchCall(client.makeBidiStreamRequest('/localv1.Sets/Watch', asIs, asIs));
}

t.test('frames go into the stream below the call, as they are', async (t) => {
  const watch = await call(t, (call) => {
    // Should grpc-js hide the stream some day, this fails, and everything is slower but works.
    call.write = () => {
      t.fail('it went through grpc-js');
      return true;
    };
    const writer = frameWriter(call);
    writer.write(Buffer.concat(FRAMES), () => call.end());
  });
  t.equal((await watch.nextBytes()).toString('hex'), '2200');
  t.ok((await watch.nextBytes()).equals(DELETE));
  t.equal((await watch.nextBytes()).toString('hex'), '0a00');
  t.equal((await watch.status).code, 0);
});

t.test('without that stream they go through grpc-js, message by message', async (t) => {
  const watch = await call(t, (call) => {
    messageWriter(call).write(Buffer.concat(FRAMES), () => call.end());
  });
  t.equal((await watch.nextBytes()).toString('hex'), '2200');
  t.ok((await watch.nextBytes()).equals(DELETE));
  t.equal((await watch.nextBytes()).toString('hex'), '0a00');
  t.equal((await watch.status).code, 0);
});

t.test('a call that has no stream is written to itself', async (t) => {
  const written: Buffer[] = [];
  const fake = Object.assign(new EventEmitter(), {
    sendMetadata: () => {},
    write(bytes: Buffer, onTaken?: () => void): void {
      written.push(bytes);
      onTaken?.();
    },
  });
  let taken = 0;
  frameWriter(fake as unknown as BytesCall).write(Buffer.concat(FRAMES), () => {
    t.equal(written.length, 3, 'all of them');
    taken++;
  });
  t.equal(taken, 1);
});

t.test('data for a disconnected client counts as taken', async (t) => {
  const gone = Promise.withResolvers<void>();
  const watch = await call(t, (call) => {
    const writer = frameWriter(call);
    writer.write(RESET_FRAME);
    call.on('cancelled', () => writer.write(SYNC_FRAME, gone.resolve));
    call.on('data', () => {});
  });
  await watch.nextBytes();
  watch.cancel();
  await gone.promise;
  t.pass('told');
});
