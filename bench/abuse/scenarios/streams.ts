import { Torture, type Verdict } from '../../../test/support/torture.ts';
import { repeatFor } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

/** Every byte is a function of its place: what is lost, doubled or out of order is found. */
export const streams: Abuse = {
  name: 'streams',
  title: 'TCP: random chunks, stalls, resets, half-closes',
  memoryMiB: 400,
  async run(stage, size) {
    const torture = new Torture(Math.floor(Math.random() * 1e9));
    const endpoint = await torture.endpoint(stage);
    const { host, port } = await stage.expose(endpoint.port);
    const verdicts: Verdict[] = [];
    await repeatFor(size.pick(1000, 10_000), 24, async () => {
      verdicts.push(await torture.client(port, host));
    });
    verdicts.push(...(await torture.endpointVerdicts()));
    const megabytes = verdicts.reduce((sum, { bytes }) => sum + bytes, 0) / 1e6;
    return {
      did: `${torture.connections} connections, ${megabytes.toFixed(0)} MB compared`,
      mistakes: verdicts.flatMap(({ mistakes }) => mistakes),
    };
  },
};
