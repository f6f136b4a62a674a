/** Datagrams to and fro. */
import { streamOf } from '../../examples/support/stream-bytes.ts';
import { openUdpClient } from '../../examples/support/udp.ts';
import { sizeText, type Check } from './check.ts';
import { ENDPOINTS } from './scene.ts';
import { createHash } from 'node:crypto';

const CLIENTS = 6;
/** Of a datagram. Bytes. */
const LENGTH = 6 * 1024;

/** Text, as the endpoint's greeting before it is. */
async function payload(client: number): Promise<string> {
  const bytes = Buffer.concat(await streamOf(`datagram ${client}`, LENGTH).toArray());
  return bytes.toString('hex').slice(0, LENGTH);
}

async function ask(host: string, port: number, text: string): Promise<string> {
  const client = await openUdpClient(host, port);
  try {
    return await client.ask(text);
  } finally {
    client.close();
  }
}

export const datagrams: Check = async ({ host, ports }) => {
  const answers = await Promise.all(
    Array.from({ length: CLIENTS }, async (_, client) => {
      const text = await payload(client);
      const [, name, echoed = ''] =
        /^(\w+) says (.*)$/s.exec(await ask(host, ports.echo, text)) ?? [];
      return { name: name ?? 'nobody', equal: sha256(echoed) === sha256(text) };
    }),
  );
  const wrong = answers.filter(({ equal }) => !equal).length;
  const served = new Set(answers.map(({ name }) => name));
  return {
    ok: wrong === 0 && served.size === ENDPOINTS.length,
    text:
      `datagrams: ${CLIENTS} clients with ${sizeText(LENGTH)}, ` +
      `answered by ${[...served].sort().join(', ')}; SHA-256 ${wrong === 0 ? 'equal' : `differs in ${wrong}`}`,
  };
};

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
