/** Datagrams to and fro, by `nc -u` where there is one. */
import { streamOf } from '../../examples/support/stream-bytes.ts';
import { openUdpClient } from '../../examples/support/udp.ts';
import { isInstalled, startTool } from '../support/tools.ts';
import { sizeText, type Check } from './check.ts';
import { ENDPOINTS } from './scene.ts';
import { createHash } from 'node:crypto';

const CLIENTS = 6;
/** One datagram: nc reads up to 16 KiB of its input at once. */
const LENGTH = 6 * 1024;

/** Text, so that nc and the endpoint's greeting can be told apart from it. */
async function payload(client: number): Promise<string> {
  const bytes = Buffer.concat(await streamOf(`datagram ${client}`, LENGTH).toArray());
  return bytes.toString('hex').slice(0, LENGTH);
}

async function askWithNc(host: string, port: number, text: string): Promise<string> {
  const tool = startTool('nc', ['-u', '-w', '1', host, String(port)], 30_000);
  tool.input.end(text);
  const [answer] = await Promise.all([tool.output.toArray(), tool.ended]);
  return Buffer.concat(answer).toString();
}

async function askWithNode(host: string, port: number, text: string): Promise<string> {
  const client = await openUdpClient(host, port);
  try {
    return await client.ask(text);
  } finally {
    client.close();
  }
}

export const datagrams: Check = async ({ host, ports }) => {
  const withNc = isInstalled('nc');
  const ask = withNc ? askWithNc : askWithNode;
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
      `datagrams: ${CLIENTS} clients with ${sizeText(LENGTH)} by ${withNc ? 'nc -u' : 'node:dgram'}, ` +
      `answered by ${[...served].sort().join(', ')}; SHA-256 ${wrong === 0 ? 'equal' : `differs in ${wrong}`}`,
  };
};

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
