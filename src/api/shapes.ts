/** The layout of the messages of both APIs, for the check before they are decoded (see wire.ts). */
import type { Shape } from './wire.ts';

const IP_SET: Shape = { 1: 'text', 2: 'text' };
const MAP_ENTRY: Shape = { 1: 'text', 2: 'text' };
const REF: Shape = { 2: 'text' };
const TOPOLOGY: Shape = { 1: 'text', 2: 'text' };

export const SERVICE: Shape = {
  1: 'text',
  2: 'text',
  3: 'text',
  4: { 1: IP_SET, 2: IP_SET, 4: IP_SET },
  6: { 1: 'text', 6: 'text' },
  8: MAP_ENTRY,
  9: MAP_ENTRY,
  10: { 1: IP_SET, 2: 'text' },
  11: {},
};

export const ENDPOINT: Shape = { 1: 'text', 2: IP_SET, 4: { 1: 'text' }, 5: {} };

export const SERVICE_INFO: Shape = { 2: SERVICE };

export const ENDPOINT_INFO: Shape = {
  2: 'text',
  3: 'text',
  4: 'text',
  6: ENDPOINT,
  7: {},
  8: 'text',
  9: TOPOLOGY,
  10: { 1: 'text', 2: 'text' },
};

export const NODE_INFO: Shape = { 2: { 1: 'text', 2: MAP_ENTRY, 3: MAP_ENTRY, 4: TOPOLOGY } };

export const OP_ITEM: Shape = { 1: {}, 2: { 1: REF }, 3: REF, 4: {} };
