import { text, toggle } from './kinds.ts';
import { flag, group } from './table.ts';

const GROUP = 'Restart';

/** How a process takes over from the one before it. */
export const HANDOVER_FLAGS = group(GROUP, {
  'handover-socket': flag(
    text('path'),
    '',
    'Unix socket over which the running process hands its listeners to a new one with the same flag (Linux, ' +
      'Node 26); the old process then drains and exits. Empty: off.',
  ),
  'handover-wait': flag(
    toggle(),
    false,
    'After the handover and the drain, wait for a signal or for the end of the new process instead of ' +
      'exiting: for pods, whose restart would take over again.',
  ),
});
