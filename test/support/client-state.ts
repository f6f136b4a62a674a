import assert from 'node:assert/strict';
import type { OpItem } from '../../src/api/generated/localv1/api.ts';

/** What a client of either API knows: the bytes of each entry, by set and path. */
export class ClientState {
  readonly entries = new Map<string, string>();

  /** Applies an operation; throws if it reports nothing new. */
  apply({ op }: OpItem): void {
    if (op?.$case === 'set') {
      const key = `${op.value.ref?.set} ${op.value.ref?.path}`;
      const bytes = Buffer.from(op.value.bytes).toString('base64');
      assert.notEqual(this.entries.get(key), bytes, `Set of ${key} that changes nothing`);
      this.entries.set(key, bytes);
    } else if (op?.$case === 'delete') {
      const key = `${op.value.set} ${op.value.path}`;
      assert.ok(this.entries.delete(key), `Delete of ${key}, which is not there`);
    } else if (op?.$case === 'reset') {
      this.entries.clear();
    }
  }

  /** In an order of its own, so that it can be compared. */
  sorted(): [string, string][] {
    return [...this.entries].sort(([a], [b]) => (a < b ? -1 : 1));
  }
}
