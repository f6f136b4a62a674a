import { text, toggle } from './kinds.ts';
import { flag, group } from './table.ts';

const GROUP = 'Restart';

/** How a process takes over from the one before it. */
export const HANDOVER_FLAGS = group(GROUP, {
  'handover-socket': flag(
    text('path'),
    '',
    'Unix socket over which a process gives its listeners to its successor (Linux, Node 26). Give both the ' +
      'same path: the one that starts takes over from the one that runs, which then drains and ends. ' +
      'Empty: off.',
  ),
  'handover-wait': flag(
    toggle(),
    false,
    'Once a successor has taken over and the connections have ended, wait for a signal, or until the ' +
      'successor has gone, instead of ending: for pods, whose restart would take over again.',
  ),
});
