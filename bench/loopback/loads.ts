import { BYTES, unitsOf, type DataLoad } from '../data/loads/load.ts';
import { runOwn, type OwnWork } from '../data/loads/own.ts';

function load(
  word: string,
  title: string,
  work: OwnWork,
  units = BYTES,
  protocol: DataLoad['protocol'] = 'TCP',
): DataLoad {
  return { word, title, protocol, ...units, run: (how) => runOwn(how, work) };
}

/** What is measured on loopback, with clients of this project. */
export const LOOPBACK_LOADS: readonly DataLoad[] = [
  load('bulk-down', 'bulk TCP, endpoint to client, 1 stream', { kind: 'down' }),
  load('bulk-up', 'bulk TCP, client to endpoint, 1 stream', { kind: 'up' }),
  load(
    'requests',
    'small requests, 64 connections kept',
    { kind: 'requests', clients: 64, perSecond: 0 },
    unitsOf('request'),
  ),
  load(
    'connections',
    'a connection for each request, 16 at once',
    { kind: 'connections', clients: 16 },
    unitsOf('connection'),
  ),
  load(
    'udp',
    'UDP round trips, 64 clients',
    { kind: 'echo', clients: 64 },
    unitsOf('round trip'),
    'UDP',
  ),
];
