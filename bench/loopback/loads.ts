import { join } from 'node:path';
import type { DataLoad } from '../data/loads/load.ts';
import { ownConnections, ownEcho, ownRequests, runClient } from '../data/loads/own.ts';
import type { BulkSettings } from './bulk-client.ts';
import type { LoopbackPorts } from './peers.ts';

const BULK = join(import.meta.dirname, 'bulk-client.ts');

/** What is measured on loopback, with clients of this project. */
export function loopbackLoads(ports: LoopbackPorts): readonly DataLoad[] {
  const bulk = (direction: BulkSettings['direction'], port: number): DataLoad => ({
    word: `bulk-${direction}`,
    title: `bulk TCP, ${direction === 'down' ? 'endpoint to client' : 'client to endpoint'}, 1 stream`,
    protocol: 'TCP',
    tool: undefined,
    rate: { name: 'GB/s', factor: 1e-9 },
    cpu: { name: 'ms/GB', factor: 1e12 },
    run: (how) => runClient<BulkSettings>(how, BULK, { port, direction }),
  });
  const small = (
    word: string,
    title: string,
    unit: string,
    run: DataLoad['run'],
    protocol: DataLoad['protocol'] = 'TCP',
  ): DataLoad => ({
    word,
    title,
    protocol,
    tool: undefined,
    rate: { name: 'k/s', factor: 1e-3 },
    cpu: { name: `µs/${unit}`, factor: 1e6 },
    run: (how) => run({ ...how, ports }),
  });
  return [
    bulk('down', ports.source),
    bulk('up', ports.sink),
    small('requests', 'small requests, 64 connections kept', 'request', (how) =>
      ownRequests(how, 64, 0),
    ),
    small('connections', 'a connection for each request, 16 at once', 'connection', (how) =>
      ownConnections(how, 16),
    ),
    small('udp', 'UDP round trips, 64 clients', 'round trip', (how) => ownEcho(how, 64), 'UDP'),
  ];
}

/** Their names. */
export const LOOPBACK_LOADS = ['bulk-down', 'bulk-up', 'requests', 'connections', 'udp'] as const;
