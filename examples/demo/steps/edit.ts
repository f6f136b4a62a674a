import { Agent, request, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { get } from '../../support/http.ts';
import { until } from '../../support/until.ts';
import { OVEN, SHOP } from '../scene.ts';
import { counts } from '../screen.ts';
import { whoAnswered, type Step } from './step.ts';

/** Asks on the connection that `agent` keeps; `reused` is false when it had to make a new one. */
async function askOn(agent: Agent, url: string): Promise<{ name: string; reused: boolean }> {
  const outgoing = request(url, { agent });
  outgoing.end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  const name = whoAnswered(Buffer.concat(await response.toArray()).toString());
  return { name, reused: outgoing.reusedSocket };
}

/** Resolves with the milliseconds until `url` is answered by `name`, or by any endpoint. */
async function answeredBy(url: string, name?: string): Promise<number> {
  const start = performance.now();
  await until(`${name ?? 'somebody'} answers at ${url}`, async () => {
    const who = whoAnswered((await get(url)).body);
    return name === undefined || who === name ? true : undefined;
  });
  return performance.now() - start;
}

export const editEndpoints: Step = {
  title: 'The file is edited: birch goes, dogwood comes',
  async run(scene) {
    const { ports, endpoints } = scene;
    const url = `http://${SHOP}:${ports.http}/`;
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const before = await askOn(agent, url);
    // birch listens again, so only the file keeps clients away from it.
    await Promise.all([endpoints.birch.start(), endpoints.dogwood.start()]);
    scene.write(['alder', 'cedar', 'dogwood']);
    const ms = await answeredBy(url, 'dogwood');
    const names: string[] = [];
    for (let i = 0; i < 30; i += 1) names.push(whoAnswered((await get(url)).body));
    const after = await askOn(agent, url);
    agent.destroy();
    return {
      lines: [
        `dogwood answers ${ms.toFixed(0)} ms after the edit; 30 requests: ${counts(names)}`,
        `a connection that was open all the time: ${before.name} before, ${after.name} after`,
      ],
      ok:
        new Set(names).size === 3 &&
        !names.includes('birch') &&
        after.reused &&
        before.name === after.name,
      verdict: 'picked up without a restart; open connections were left alone',
    };
  },
};

export const editServices: Step = {
  title: 'The file is edited again: a new service',
  async run(scene) {
    const url = `http://${OVEN}:${scene.ports.http}/`;
    scene.write(['alder', 'cedar', 'dogwood'], true);
    const ms = await answeredBy(url);
    return {
      lines: [`bakery/oven answers at ${url} ${ms.toFixed(0)} ms after the edit`],
      ok: true,
      verdict: 'listening without a restart',
    };
  },
};
