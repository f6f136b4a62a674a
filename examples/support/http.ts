import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';

export interface Answer {
  readonly status: number;
  readonly body: string;
}

interface GetOptions {
  /** Address of this host to come from. Default: the system's choice. */
  readonly localAddress?: string;
  /** Path of a unix socket; the host of the URL does not count then. */
  readonly socketPath?: string;
}

/** Gets a page on a connection of its own. Rejects when the connection fails or takes more than 20 s. */
export async function get(url: string, options: GetOptions = {}): Promise<Answer> {
  const outgoing = request(url, { agent: false, signal: AbortSignal.timeout(20_000), ...options });
  // Once there is an answer, reading it rejects.
  outgoing.on('error', () => undefined).end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  return { status: response.statusCode ?? 0, body: await text(response) };
}
