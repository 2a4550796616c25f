// SPDX-License-Identifier: GPL-2.0-only
// PCI Express devices that are only configuration space, in PCI domain 1 on NUMA node 1, because QEMU's own ignore a write of
// Max_Read_Request_Size:
//
//   0001:00:00.0  port with ACS, above the GPU
//   0001:00:01.0  port with ACS, above nothing
//   0001:00:02.0  network adapter
//   0001:00:03.0  switch port that ignores Max_Read_Request_Size
//   0001:01:00.0  GPU
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/string.h>

#define CAP 0x40
#define ACS 0x100

struct fake {
	u8 bus;
	u8 slot;
	u8 port; // PCI Express port type
	u16 vendor;
	u16 device;
	u32 class;
	bool read_only;
	u8 space[4096];
	u8 writable[4096]; // mask of the bits that keep a write
};

static struct fake fakes[] = {
	{ 0, 0, PCI_EXP_TYPE_ROOT_PORT, 0x1022, 0x14ab, 0x060400 },
	{ 0, 1, PCI_EXP_TYPE_ROOT_PORT, 0x1022, 0x14ab, 0x060400 },
	{ 0, 2, PCI_EXP_TYPE_ENDPOINT, 0x15b3, 0x10ff, 0x020000 },
	{ 0, 3, PCI_EXP_TYPE_DOWNSTREAM, 0x1000, 0xc010, 0x060400, true },
	{ 1, 0, PCI_EXP_TYPE_ENDPOINT, 0x10de, 0x2bb1, 0x030000 },
};

static struct pci_sysdata sysdata = { .domain = 1, .node = 1 };
static struct resource buses = { .name = "tokforge", .start = 0, .end = 255, .flags = IORESOURCE_BUS };
static struct pci_bus *root;

static struct fake *at(struct pci_bus *bus, unsigned int devfn)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fakes); i++)
		if (fakes[i].bus == bus->number && PCI_DEVFN(fakes[i].slot, 0) == devfn)
			return &fakes[i];
	return NULL;
}

static int config_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct fake *fake = at(bus, devfn);

	if (!fake) {
		*value = ~0;
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	*value = 0;
	memcpy(value, fake->space + where, size);
	return PCIBIOS_SUCCESSFUL;
}

static int config_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct fake *fake = at(bus, devfn);
	int i;

	if (!fake)
		return PCIBIOS_DEVICE_NOT_FOUND;
	for (i = where; i < where + size; i++, value >>= 8)
		fake->space[i] = (fake->space[i] & ~fake->writable[i]) | (value & fake->writable[i]);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops config = { .read = config_read, .write = config_write };

static void put16(u8 *space, int where, u16 value)
{
	memcpy(space + where, &value, sizeof(value));
}

static void put32(u8 *space, int where, u32 value)
{
	memcpy(space + where, &value, sizeof(value));
}

static void fill(struct fake *fake)
{
	bool bridge = fake->class == 0x060400;

	put16(fake->space, PCI_VENDOR_ID, fake->vendor);
	put16(fake->space, PCI_DEVICE_ID, fake->device);
	put16(fake->space, PCI_STATUS, PCI_STATUS_CAP_LIST);
	put32(fake->space, PCI_CLASS_REVISION, fake->class << 8);
	fake->space[PCI_CAPABILITY_LIST] = CAP;
	put16(fake->writable, PCI_COMMAND, 0xffff);

	fake->space[CAP] = PCI_CAP_ID_EXP;
	put16(fake->space, CAP + PCI_EXP_FLAGS, 2 | fake->port << 4);
	// The sizes a device starts with: payload of 256, requests of 512 bytes.
	put16(fake->space, CAP + PCI_EXP_DEVCTL, fake->read_only ? 0x0020 : 0x2020);
	put16(fake->writable, CAP + PCI_EXP_DEVCTL, fake->read_only ? 0x0fff : 0x7fff);
	put32(fake->space, CAP + PCI_EXP_DEVCAP, 2);
	put32(fake->space, CAP + PCI_EXP_LNKCAP, PCI_EXP_LNKCAP_SLS_32_0GB | 16 << 4);
	put16(fake->space, CAP + PCI_EXP_LNKSTA, PCI_EXP_LNKSTA_CLS_32_0GB | 16 << 4);

	if (!bridge)
		return;
	fake->space[PCI_HEADER_TYPE] = PCI_HEADER_TYPE_BRIDGE;
	// Bus numbers as firmware leaves them: one bus below each port.
	fake->space[PCI_SECONDARY_BUS] = 1 + fake->slot;
	fake->space[PCI_SUBORDINATE_BUS] = 1 + fake->slot;
	put32(fake->space, ACS, PCI_EXT_CAP_ID_ACS | 1 << 16);
	put16(fake->space, ACS + PCI_ACS_CAP, 0x5f);
	put16(fake->space, ACS + PCI_ACS_CTRL, 0x1d);
	put16(fake->writable, ACS + PCI_ACS_CTRL, 0x5f);
}

static int __init tokforge_pci_init(void)
{
	LIST_HEAD(resources);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fakes); i++)
		fill(&fakes[i]);
	pci_add_resource(&resources, &buses);
	root = pci_scan_root_bus(NULL, 0, &config, &sysdata, &resources);
	if (!root)
		return -ENOMEM;
	pci_bus_add_devices(root);
	return 0;
}

// There is no way out: the devices stay until the machine stops.
module_init(tokforge_pci_init);
MODULE_DESCRIPTION("PCI Express devices for a test machine");
MODULE_LICENSE("GPL");
