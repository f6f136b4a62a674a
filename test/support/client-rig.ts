import type { Test } from 'tap';
import { KpngClient, type KpngClientOptions } from '../../src/client/client.ts';
import type { KpngError } from '../../src/errors.ts';
import { FakeClock } from './fake-clock.ts';
import { startKpngServer, type KpngServer, type KpngServerOptions } from './kpng-server.ts';
import { Mailbox } from './mailbox.ts';
import { RecordingSink } from './recording-sink.ts';

export interface ClientRig {
  readonly server: KpngServer;
  readonly client: KpngClient;
  readonly sink: RecordingSink;
  /** Decides when the client connects again. Its jitter is off: 1000 ms, 1600 ms, ... */
  readonly clock: FakeClock;
  /** What the client reports, one by one. */
  readonly errors: Mailbox<KpngError>;
  readonly stop: AbortController;
  /** The client's run. */
  readonly done: Promise<void>;
}

export interface RigOptions extends Partial<KpngClientOptions> {
  readonly server?: KpngServerOptions;
  readonly sink?: RecordingSink;
}

/** A scripted server and a client that runs against it. Both end with the test. */
export async function startClientRig(t: Test, options: RigOptions = {}): Promise<ClientRig> {
  const { server: serverOptions, sink = new RecordingSink(), ...clientOptions } = options;
  const server = await startKpngServer(serverOptions);
  const clock = new FakeClock();
  const errors = new Mailbox<KpngError>('an error');
  const stop = new AbortController();
  const client = new KpngClient({
    target: server.target,
    nodeName: 'node-a',
    clock,
    random: () => 0.5,
    onError: (error) => errors.put(error),
    ...clientOptions,
  });
  const done = client.run(sink, stop.signal);
  // A rejection is for the test to look at; it may do so late.
  done.catch(() => {});
  t.teardown(async () => {
    stop.abort();
    await done.catch(() => {});
    server.stop();
  });
  return { server, client, sink, clock, errors, stop, done };
}
