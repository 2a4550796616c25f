// SPDX-License-Identifier: GPL-2.0-only
// Has the name and the parameter of NVIDIA's module and does nothing, so that an option for it can be seen to arrive.
#include <linux/module.h>
#include <linux/moduleparam.h>

static int uvm_disable_hmm;
module_param(uvm_disable_hmm, int, 0444);
MODULE_PARM_DESC(uvm_disable_hmm, "Kept for whoever reads it");

static int __init stand_in_init(void)
{
	return 0;
}

static void __exit stand_in_exit(void)
{
}

module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_DESCRIPTION("Stand-in for nvidia_uvm in a test machine");
MODULE_LICENSE("GPL");
