import test from 'ava';
import { findCommand } from '../../../scripts/packages.ts';

/** `test`, or `test.skip` when one of these programs is not on this machine; scripts/test.ts names the missing ones. */
export function testWith(...names: string[]): typeof test.skip {
  return names.every((name) => findCommand(name) !== undefined) ? test.serial : test.serial.skip;
}
