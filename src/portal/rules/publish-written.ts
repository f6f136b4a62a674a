import { portalWritten } from '../events.ts';
import type { Portal } from '../portal.ts';
import { isFlowSet } from './flow-items.ts';
import type { Written } from './writer.ts';

/** Tells of a write. Only rules count; where flows lead is a consequence of them. */
export function publishWritten(
  portal: Portal['kind'],
  { reason, changes }: Written,
  durationMs: number,
): void {
  if (!portalWritten.hasSubscribers) return;
  const rules = changes.filter(({ set }) => !isFlowSet(set));
  portalWritten.publish({
    portal,
    reason,
    added: rules.filter(({ after }) => after !== undefined).length,
    removed: rules.filter(({ before }) => before !== undefined).length,
    durationMs,
  });
}
