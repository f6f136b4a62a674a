/** Runs in the namespace: the endpoints, and a client that reports when a change can be seen. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { answerRequests } from '../support/dialogue.ts';
import { ENDPOINT_ADDRESSES, ENDPOINT_PORT } from './network.ts';
import { now, type Moment } from './subject.ts';

export interface ClientRequest {
  readonly address: string;
  readonly port: number;
  /** An endpoint's address, `any` endpoint, or `refused`. */
  readonly until: string;
  /** Timeout in milliseconds. */
  readonly within: number;
}

for (const host of ENDPOINT_ADDRESSES) {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.end(host);
  });
  server.listen({ host, port: ENDPOINT_PORT });
  await once(server, 'listening');
}

/** Answers with when it was so for the first time. */
answerRequests(async (request: ClientRequest): Promise<Moment> => {
  const begin = now();
  for (;;) {
    const answer = await ask(request);
    const at = now();
    const isAny = request.until === 'any' && ENDPOINT_ADDRESSES.some((each) => each === answer);
    if (isAny || answer === request.until) return at;
    if (at - begin > request.within) {
      throw new Error(`${request.address}:${request.port}: still ${answer}, not ${request.until}`);
    }
    // Often enough for half a percent, and seldom enough not to be in the way of what is measured.
    await wait(Math.max(1, (at - begin) / 200));
  }
});

/** Who answers: an endpoint, `refused`, or `closed`. */
async function ask({ address, port }: ClientRequest): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect({ host: address, port, timeout: 500 });
  socket.once('data', (data) => resolve(data.toString()));
  socket.once('error', (error: NodeJS.ErrnoException) => {
    resolve(error.code === 'ECONNREFUSED' ? 'refused' : (error.code ?? 'failed'));
  });
  socket.once('timeout', () => resolve('silence'));
  socket.once('close', () => resolve('closed'));
  const answer = await promise;
  socket.destroy();
  return answer;
}
