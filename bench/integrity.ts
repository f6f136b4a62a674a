/** `npm run bench -- integrity`: everything arrives as it was sent, and new connections never fail. */
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { SEED } from '../examples/support/endpoint.ts';
import { get } from '../examples/support/http.ts';
import { digestOf, digestOfStream, streamOf } from '../examples/support/stream-bytes.ts';
import { openUdpClient } from '../examples/support/udp.ts';
import { ENDPOINTS, openIntegrityScene, type IntegrityScene } from './integrity/scene.ts';
import type { Print } from './support/command.ts';

interface Check {
  readonly ok: boolean;
  /** One line with numbers. */
  readonly text: string;
}

/** Seed of what clients send. */
const CLIENT_SEED = 'client';
/** A transfer that takes longer has failed. Milliseconds. */
const TIME_LIMIT = 300_000;
const AT_ONCE = 6;
/** Of a datagram. Bytes. */
const DATAGRAM_BYTES = 6 * 1024;
/** Of the check that kills an endpoint. */
const CLIENTS = 16;
const VICTIM = 'birch';

/** Runs every check, also after a failure, and resolves with whether all are well. `connections`: of the check that kills an endpoint. */
export async function runIntegrity(
  mib: number,
  print: Print,
  connections = 3000,
): Promise<boolean> {
  const scene = await openIntegrityScene();
  const bytes = mib * 1024 * 1024;
  const part = bytes / 16;
  const checks: readonly (() => Promise<Check>)[] = [
    () => transfers(scene, 'download', 1, bytes),
    () => transfers(scene, 'upload', 1, bytes),
    () => transfers(scene, 'download', AT_ONCE, part),
    () => transfers(scene, 'upload', AT_ONCE, part),
    () => datagrams(scene),
    () => killedUnderLoad(scene, connections),
  ];
  let allOk = true;
  try {
    for (const check of checks) {
      const found = await check().catch((error: unknown) => ({ ok: false, text: String(error) }));
      print(`${found.ok ? 'ok  ' : 'FAIL'}  ${found.text}`);
      allOk &&= found.ok;
    }
  } finally {
    await scene.close();
  }
  return allOk;
}

/** Large transfers, one alone or several at once, compared by SHA-256. */
async function transfers(
  { host, ports }: IntegrityScene,
  way: 'download' | 'upload',
  atOnce: number,
  bytes: number,
): Promise<Check> {
  const length = Math.ceil(bytes);
  const isUpload = way === 'upload';
  const wanted = digestOf(isUpload ? CLIENT_SEED : SEED, length);
  const url = `http://${host}:${ports.http}/${isUpload ? 'digest' : `bytes/${length}`}`;
  const transfer = async () => {
    const method = isUpload ? 'PUT' : 'GET';
    const outgoing = request(url, { method, agent: false, timeout: TIME_LIMIT });
    const answered = once(outgoing, 'response') as Promise<[IncomingMessage]>;
    const sent = isUpload ? pipeline(streamOf(CLIENT_SEED, length), outgoing) : outgoing.end();
    const [[response]] = await Promise.all([answered, sent]);
    const digest = isUpload
      ? (await text(response)).trim()
      : (await digestOfStream(response)).digest;
    return { digest, endpoint: String(response.headers['x-endpoint']) };
  };
  const start = performance.now();
  const ended = await Promise.all(Array.from({ length: atOnce }, transfer));
  const seconds = (performance.now() - start) / 1000;
  const wrong = ended.filter(({ digest }) => digest !== wanted).length;
  const served = new Set(ended.map(({ endpoint }) => endpoint));
  const what = atOnce === 1 ? `one ${way}` : `${way}s at once`;
  const size = `${Number((length / 1024 ** 2).toFixed(1))} MiB`;
  const speed = ((length * atOnce) / seconds / 1e9).toFixed(2);
  return {
    ok: wrong === 0 && served.size >= Math.min(atOnce, ENDPOINTS.length),
    text: `${what}: ${atOnce} x ${size}, ${speed} GB/s, served by ${namesOf(served)}; SHA-256 ${equality(wrong)}`,
  };
}

function namesOf(endpoints: ReadonlySet<string>): string {
  return [...endpoints].sort().join(', ');
}

function equality(wrong: number): string {
  return wrong === 0 ? 'equal' : `differs in ${wrong}`;
}

/** Text, as the endpoint's greeting before it is. */
async function datagrams({ host, ports }: IntegrityScene): Promise<Check> {
  const exchange = async (_: unknown, index: number) => {
    const bytes = Buffer.concat(await streamOf(`datagram ${index}`, DATAGRAM_BYTES / 2).toArray());
    const hex = bytes.toString('hex');
    const client = await openUdpClient(host, ports.echo);
    const answer = await client.ask(hex).finally(() => client.close());
    const [, name = 'no one', echoed = ''] = /^(\w+) says (.*)$/s.exec(answer) ?? [];
    return { name, isEqual: echoed === hex };
  };
  const answers = await Promise.all(Array.from({ length: AT_ONCE }, exchange));
  const wrong = answers.filter(({ isEqual }) => !isEqual).length;
  const served = new Set(answers.map(({ name }) => name));
  return {
    ok: wrong === 0 && served.size === ENDPOINTS.length,
    text: `datagrams: ${AT_ONCE} clients with 6 KiB, answered by ${namesOf(served)}; ${equality(wrong)}`,
  };
}

/** An endpoint is killed in the middle of a load of new connections. */
async function killedUnderLoad(scene: IntegrityScene, connections: number): Promise<Check> {
  const url = `http://${scene.host}:${scene.ports.http}/`;
  let begun = 0;
  let gone = false;
  let cut = 0;
  let after = 0;
  const failures: string[] = [];
  let killing: Promise<void> | undefined;
  const client = async (): Promise<void> => {
    while (begun < connections) {
      begun += 1;
      if (begun === Math.floor(connections / 3)) {
        killing = scene.kill(VICTIM).then(() => {
          gone = true;
        });
      }
      // A connection that began before the end of the process may have been cut with it.
      const isNew = gone;
      if (isNew) after += 1;
      try {
        await get(url);
      } catch (error) {
        if (isNew) failures.push(String(error));
        else cut += 1;
      }
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  await killing;
  return {
    ok: failures.length === 0 && after > 0,
    text:
      `${VICTIM} killed under load: ${connections} connections, ${cut} cut in flight; ` +
      `begun after it was gone: ${after}, failed: ${failures.length}` +
      (failures.length > 0 ? ` (${failures[0]})` : ''),
  };
}
