import { PORTS } from '../ports.ts';
import { BYTES, runTool, unitsOf, type DataLoad, type LoadRun, type Sample } from './load.ts';

/** Datagrams of the one-way load: bytes of each, and how many a second. */
const DATAGRAM_BYTES = 1200;
const DATAGRAMS_PER_SECOND = 40_000;

interface IperfReport {
  readonly error?: string;
  readonly end?: {
    readonly sum_received?: { readonly bytes: number; readonly seconds: number };
    readonly sum?: {
      readonly packets: number;
      readonly lost_packets: number;
      readonly seconds: number;
    };
  };
}

async function iperf(
  how: LoadRun,
  flags: readonly string[],
  read: (report: IperfReport) => Omit<Sample, 'cpu'>,
): Promise<Sample> {
  const line = `iperf3 -J -c ${how.address} -p ${PORTS.iperf} -t ${how.seconds}`;
  const { output, cpu } = await runTool(how, [...line.split(' '), ...flags]);
  return { ...read(JSON.parse(output) as IperfReport), cpu };
}

function bulk(streams: number, down: boolean): DataLoad {
  const from = down ? 'endpoint to client' : 'client to endpoint';
  return {
    word: `bulk-${down ? 'down' : 'up'}-${streams}`,
    title: `bulk TCP, ${from}, ${streams} ${streams === 1 ? 'stream' : 'streams'}`,
    protocol: 'TCP',
    tool: 'iperf3',
    ...BYTES,
    run: (how) => iperf(how, ['-P', String(streams), ...(down ? ['-R'] : [])], readBulk),
  };
}

/** Bytes that arrived. Throws when iperf3 reports an error. */
export function readBulk({ error, end }: IperfReport): Omit<Sample, 'cpu'> {
  const received = end?.sum_received;
  if (error !== undefined || received === undefined || received.bytes === 0) {
    throw new Error(`iperf3: ${error ?? 'nothing has arrived'}`);
  }
  return { total: received.bytes, rate: received.bytes / received.seconds };
}

/** Datagrams that arrived, and the share of those that did not. */
export function readDatagrams({ error, end }: IperfReport): Omit<Sample, 'cpu'> {
  const sum = end?.sum;
  if (error !== undefined || sum === undefined || sum.packets === sum.lost_packets) {
    throw new Error(`iperf3: ${error ?? 'nothing has arrived'}`);
  }
  const arrived = sum.packets - sum.lost_packets;
  return { total: arrived, rate: arrived / sum.seconds, lost: sum.lost_packets / sum.packets };
}

const bits = DATAGRAM_BYTES * DATAGRAMS_PER_SECOND * 8;

export const BULK_LOADS: readonly DataLoad[] = [1, 8].flatMap((streams) => [
  bulk(streams, true),
  bulk(streams, false),
]);

export const ONE_WAY_LOAD: DataLoad = {
  word: 'udp-one-way',
  title: `UDP one way, ${DATAGRAM_BYTES} bytes, ${DATAGRAMS_PER_SECOND / 1000} k/s offered`,
  protocol: 'UDP',
  tool: 'iperf3',
  ...unitsOf('datagram'),
  run: (how) => iperf(how, ['-u', '-l', String(DATAGRAM_BYTES), '-b', String(bits)], readDatagrams),
};
