import { request } from 'node:http';

export interface Answer {
  readonly status: number;
  readonly body: string;
}

interface GetOptions {
  /** Address of this host to come from. Default: the system's choice. */
  readonly from?: string;
  /** Timeout in milliseconds. Default: 5 s. */
  readonly within?: number;
}

/** Gets a page on a connection of its own. Rejects when the connection fails or takes too long. */
export function get(url: string, options: GetOptions = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { from, within = 5000 } = options;
    const outgoing = request(url, {
      agent: false,
      signal: AbortSignal.timeout(within),
      ...(from === undefined ? {} : { localAddress: from }),
    });
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (text: string) => {
        body += text;
      });
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
    });
    outgoing.end();
  });
}
