import type { FfiModule } from './library.ts';
import { Pinned } from './memory.ts';

/** Where the network header of a packet begins, for classic BPF. */
const NETWORK = 0xfff00000;
/** Scatters addresses that differ in a few bits (2^32 divided by the golden ratio). */
const SCATTER = 0x9e3779b1;

/** Codes of classic BPF instructions: what they do with the accumulator. */
const LOAD_BYTE = 0x30;
const LOAD_WORD = 0x20;
const JUMP = 0x05;
const JUMP_IF_EQUAL = 0x15;
const SHIFT_RIGHT = 0x74;
const MULTIPLY = 0x24;
const MODULO = 0x94;
const RETURN = 0x16;

/** Code, jumps when true and when false, and operand. */
type Instruction = readonly [number, number, number, number];
const INSTRUCTION_BYTES = 8;

/**
 * A program that sends all packets of a client to the same of `sockets` sockets, by the client's
 * address: the last 32 bits of it, for IPv6.
 */
export function steeringProgram(ffi: FfiModule, sockets: number): Pinned {
  const program: readonly Instruction[] = [
    [LOAD_BYTE, 0, 0, NETWORK],
    [SHIFT_RIGHT, 0, 0, 4],
    [JUMP_IF_EQUAL, 2, 0, 6],
    [LOAD_WORD, 0, 0, NETWORK + 12],
    [JUMP, 0, 0, 1],
    [LOAD_WORD, 0, 0, NETWORK + 20],
    [MULTIPLY, 0, 0, SCATTER],
    [SHIFT_RIGHT, 0, 0, 16],
    [MODULO, 0, 0, sockets],
    [RETURN, 0, 0, 0],
  ];
  const memory = Pinned.alloc(ffi, program.length * INSTRUCTION_BYTES);
  for (const [index, [code, whenTrue, whenFalse, operand]] of program.entries()) {
    const at = index * INSTRUCTION_BYTES;
    memory.view.setUint16(at, code, true);
    memory.view.setUint8(at + 2, whenTrue);
    memory.view.setUint8(at + 3, whenFalse);
    memory.view.setUint32(at + 4, operand, true);
  }
  return memory;
}

/** How many instructions such a program has. */
export function instructionsOf({ length }: Pinned): number {
  return length / INSTRUCTION_BYTES;
}
