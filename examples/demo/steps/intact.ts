import { request, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { SEED } from '../../support/endpoint.ts';
import { digestOf, digestOfStream } from '../../support/stream-bytes.ts';
import { SHOP } from '../scene.ts';
import type { Step } from './step.ts';

const LENGTH = 256 * 1024 * 1024;

export const intact: Step = {
  title: 'What goes through arrives as it was sent',
  async run({ ports }) {
    const path = `/bytes/${LENGTH}`;
    const start = performance.now();
    const outgoing = request({ host: SHOP, port: ports.http, path, agent: false });
    outgoing.end();
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
    const got = await digestOfStream(response);
    const seconds = (performance.now() - start) / 1000;
    const wanted = digestOf(SEED, LENGTH);
    return {
      lines: [
        `256 MiB from http://${SHOP}:${ports.http}${path} in ${seconds.toFixed(2)} s`,
        `sent      sha256 ${wanted.slice(0, 32)}…`,
        `received  sha256 ${got.digest.slice(0, 32)}…`,
      ],
      ok: got.length === LENGTH && got.digest === wanted,
      verdict: 'the checksums are equal',
    };
  },
};
