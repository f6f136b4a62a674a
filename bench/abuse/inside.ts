/** Servers and clients inside of a network namespace, as a program that does what it is asked. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { answerRequests } from '../support/dialogue.ts';

export type InsideRequest =
  /** Listens on all of the ports and sends one word to each client. */
  | {
      readonly kind: 'serve';
      readonly address: string;
      readonly ports: number[];
      readonly word: string;
    }
  /** Resolves with what is said there, or the error. */
  | { readonly kind: 'ask'; readonly host: string; readonly port: number };

async function serve(address: string, port: number, word: string): Promise<void> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.end(word).resume();
  });
  server.listen(port, address);
  await once(server, 'listening');
}

answerRequests(async (request: InsideRequest): Promise<string> => {
  if (request.kind === 'ask') {
    const { host, port } = request;
    const socket = connect({ host, port, signal: AbortSignal.timeout(5000) });
    return text(socket).catch((error: unknown) => String(error));
  }
  const { address, ports, word } = request;
  await Promise.all(ports.map((port) => serve(address, port, word)));
  return 'listening';
});
